"""Says what kind of work a request is, from cheap facts and a bounded look at its texts.

The answer is one of a closed set of kinds with a confidence and reasons from a closed list. Text can move a
request between these kinds and do nothing else: what a kind may cost is for the rules and the key to say.

In this order, the first that applies decides:

1. tools, and answers of tools in the conversation: agent;
2. a schema or JSON asked for: extraction;
3. a word that asks for a kind of work (summarise, translate, prove, in several languages): that kind;
4. code between fences: code;
5. tools without answers yet: agent;
6. a very long prompt: long_context;
7. a high reasoning effort: reasoning;
8. else chat.

Words are looked up whole in the beginning and the end of the last user message and the beginning of the
system text. The cost has a ceiling whatever the length of the prompt.
"""

import msgspec

from routers.facts import Classification, RequestFacts, TaskKind

LONG_INPUT_TOKENS = 32_000
SHORT_INPUT_TOKENS = 2_000  # fewer: a chat is a little surer
HIGH_EFFORTS = frozenset({"high", "xhigh", "max"})
HEAD_BYTES = 512  # of the last user message's beginning that are looked at for words
TAIL_BYTES = 192  # of its end
SYSTEM_BYTES = 256  # of the system text's beginning
FENCE_BYTES = 4_096  # of the last user message that are looked at for code fences


class Peek(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The beginnings of a request's texts, in UTF-8, as they stand in JSON (escapes may be left in)."""

    system: bytes = b""  # at least SYSTEM_BYTES of it, if it is as long
    user: bytes = b""  # of the last user message: the first FENCE_BYTES
    user_end: bytes = b""  # its last TAIL_BYTES, if it is longer
    tool_results: bool = False  # a tool has answered in this conversation


_WORDS_BY_KIND: dict[TaskKind, str] = {
    "summary": """
        summarize summarise summary summaries summarizing summarising tldr condense recap
        zusammenfassen zusammenfassung fasse kurzfassung
        résume résumer résumé résumez synthétise synthétiser
        resumir resumen resúmeme resúmelo sintetiza resuma resumo
        riassumi riassumere riassunto""",
    "translation": """
        translate translation translating translator
        übersetze übersetzen übersetzung übersetz
        traduis traduire traduction traduisez
        traduce traducir traducción tradúceme traduzca traduza traduzir tradução
        traduci tradurre traduzione""",
    "code": """
        refactor debug traceback stacktrace codebase unittest unittests pytest regex sql javascript
        typescript python rust golang kotlin compiler segfault dockerfile
        refaktoriere programmiere quellcode programmier
        refactorise débogue
        refactoriza programa depura función""",
    "extraction": """
        extract extracting parse classify categorize categorise
        extrahiere extrahieren klassifiziere
        extrais extraire extrayez classifie
        extrae extraer clasifica extraiga""",
    "reasoning": """
        prove proof theorem lemma derivative equation polynomial probability induction contradiction
        beweise beweis gleichung wahrscheinlichkeit ableitung
        prouve démontre démontrer démonstration équation théorème probabilité
        demuestra demostrar demostración ecuación teorema probabilidad""",
}
_SIGNS_BY_KIND: dict[TaskKind, tuple[str, ...]] = {  # scripts without spaces
    "summary": ("总结", "摘要", "概括", "總結", "要約", "まとめ", "요약"),
    "translation": ("翻译", "翻譯", "訳して", "번역"),
    "code": ("代码", "程式碼", "函数", "重构", "コード", "코드"),
    "extraction": ("提取", "抽取", "抽出", "추출"),
    "reasoning": ("证明", "證明", "方程", "概率", "積分", "積分", "증명"),
}
_REASON_BY_KIND: dict[TaskKind, str] = {
    "summary": "asks for a summary",
    "translation": "asks for a translation",
    "code": "words of programming",
    "extraction": "asks to extract or classify",
    "reasoning": "words of mathematics or proof",
}
_ORDER: tuple[TaskKind, ...] = ("translation", "summary", "extraction", "code", "reasoning")
_FROM_SYSTEM = "the system text says so"

_BREAKS = b"\t\n\r \"'`()[]{}<>.,:;!?/\\|*#=+-_~&%$^@"
_TO_WORDS = bytes(
    0x20 if byte in _BREAKS or byte < 0x20 else byte + 32 if 0x41 <= byte <= 0x5A else byte
    for byte in range(256)
)
_WORDS: dict[bytes, TaskKind] = {}
for _kind, _text in _WORDS_BY_KIND.items():
    for _word in _text.split():
        _WORDS[_word.encode()] = _kind
        _WORDS[_word.capitalize().encode().translate(_TO_WORDS)] = _kind  # É, Ü at the beginning
_RESUME = b"resume"  # asks for a summary among Spanish or Portuguese words; in English it is a CV
_LOOKED_FOR = frozenset({*_WORDS, _RESUME})
_SIGNS: list[tuple[bytes, TaskKind]] = [
    (sign.encode(), kind) for kind, signs in _SIGNS_BY_KIND.items() for sign in signs
]
_SPANISH = frozenset({b"el", b"la", b"los", b"las", b"este", b"esta", b"en", b"o", b"os"})
_SIGN_LEADS = tuple({sign[0] for sign, _ in _SIGNS})
_NO_SIGN_LEADS = bytes(byte for byte in range(256) if byte not in _SIGN_LEADS)
_TAIL = slice(-TAIL_BYTES, None)
_LOOKED_AT = b"%%.%db %%b %%.%db" % (HEAD_BYTES, SYSTEM_BYTES)


def classify(facts: RequestFacts, peek: Peek) -> Classification:
    """The kind of work, how sure that is, and why."""
    if facts.has_tools and peek.tool_results:
        return _AGENT_AT_WORK
    if facts.json_schema:
        return _SCHEMA
    if facts.json_output:
        return _JSON
    user, user_end = peek.user, peek.user_end
    # One byte is found many times as fast as three.
    fence = (b"`" in user and b"```" in user) or (b"`" in user_end and b"```" in user_end)
    looked_at = _LOOKED_AT % (user, user_end[_TAIL], peek.system)
    words = looked_at.replace(b"\\n", b"  ").translate(_TO_WORDS).split()
    # Most requests ask for no kind of work in a word that is known: one look at all texts tells.
    if not _LOOKED_FOR.isdisjoint(words) or looked_at.translate(None, _NO_SIGN_LEADS):
        asked = _asked_for(peek)
        if asked is not None and not (fence and asked.task_kind in ("extraction", "reasoning")):
            return asked
    if fence:
        return _FENCE
    if facts.has_tools:
        return _AGENT
    tokens = facts.input_tokens
    if tokens >= LONG_INPUT_TOKENS:
        return _LONG
    if facts.reasoning_effort in HIGH_EFFORTS:
        return _EFFORT
    return _CHAT_SHORT if tokens < SHORT_INPUT_TOKENS else _CHAT


def _asked_for(peek: Peek) -> Classification | None:
    kind = _kind_in(peek.user[:HEAD_BYTES] + b" " + peek.user_end[-TAIL_BYTES:])
    if kind is not None:
        return _BY_USER[kind]
    if not peek.system:
        return None
    kind = _kind_in(peek.system[:SYSTEM_BYTES])
    return None if kind is None else _BY_SYSTEM[kind]


def _kind_in(text: bytes) -> TaskKind | None:
    words = text.replace(b"\\n", b"  ").translate(_TO_WORDS).split()
    kinds: set[TaskKind] = set()
    for word in _LOOKED_FOR.intersection(words):
        if word != _RESUME:
            kinds.add(_WORDS[word])
        elif not _SPANISH.isdisjoint(words):
            kinds.add("summary")
    if not kinds:
        if text.isascii():
            return None
        kinds = _kinds_by_sign(text)
        if not kinds:
            return None
    for kind in _ORDER:
        if kind in kinds:
            return kind
    return None


def _kinds_by_sign(text: bytes) -> set[TaskKind]:
    for lead in _SIGN_LEADS:
        if lead in text:
            return {kind for sign, kind in _SIGNS if sign in text}
    return set()


def _seen(kind: TaskKind, confidence: float, *because: str) -> Classification:
    return Classification(task_kind=kind, confidence=confidence, because=because)


_AGENT_AT_WORK = _seen("agent", 0.95, "has tools", "tools have answered")
_AGENT = _seen("agent", 0.7, "has tools")
_SCHEMA = _seen("extraction", 0.85, "asks for a schema")
_JSON = _seen("extraction", 0.7, "asks for JSON")
_FENCE = _seen("code", 0.75, "code between fences")
_LONG = _seen("long_context", 0.8, "a very long prompt")
_EFFORT = _seen("reasoning", 0.65, "a high reasoning effort")
_CHAT = _seen("chat", 0.5, "nothing else fits")
_CHAT_SHORT = _seen("chat", 0.6, "nothing else fits", "a short prompt")
_BY_USER = {kind: _seen(kind, 0.75, _REASON_BY_KIND[kind]) for kind in _ORDER}
_BY_SYSTEM = {kind: _seen(kind, 0.6, _REASON_BY_KIND[kind], _FROM_SYSTEM) for kind in _ORDER}
REASONS: frozenset[str] = frozenset(
    reason
    for seen in (
        _AGENT_AT_WORK, _AGENT, _SCHEMA, _JSON, _FENCE, _LONG, _EFFORT, _CHAT, _CHAT_SHORT,
        *_BY_USER.values(), *_BY_SYSTEM.values(),
    )
    for reason in seen.because
)  # fmt: skip
"""Every reason that can be given."""
