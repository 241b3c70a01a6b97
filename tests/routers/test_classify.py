import pytest
from hypothesis import given
from hypothesis import strategies as st

from routers.classify import (
    REASONS,
    Peek,
    _asked_for,  # pyright: ignore[reportPrivateUsage] - the long way, to compare with
    classify,
)
from routers.conditions import TASK_KINDS
from routers.facts import Classification, RequestFacts


def facts(**changes: object) -> RequestFacts:
    return RequestFacts(**({"model": "auto", "input_tokens": 200} | changes))  # pyright: ignore[reportArgumentType] - a builder


def kind_of(user: str, *, system: str = "", **changes: object) -> str:
    peek = Peek(user=user.encode()[:4096], user_end=user.encode()[4096:][-256:], system=system.encode())
    return classify(facts(**changes), peek).task_kind


EXAMPLES = {
    "summary": [
        "Summarize the following meeting notes in three bullet points:",
        "Can you give me a TL;DR? summary please",
        "Bitte fasse diesen Text in drei Sätzen zusammen.",
        "Schreibe eine Zusammenfassung des Artikels.",
        "Résume ce texte en trois phrases.",
        "Peux-tu faire un résumé de cet article ?",
        "Resume este artículo en tres frases.",
        "Hazme un resumen del documento",
        "请总结以下文章的要点。",
        "這篇文章的摘要",
    ],
    "translation": [
        "Translate this into German: The invoice is overdue.",
        "\\n\\nTranslate:\\nGood morning",
        "Übersetze das bitte ins Englische: Die Rechnung ist überfällig.",
        "Kannst du diesen Brief übersetzen?",
        "Traduis ce texte en anglais.",
        "Traduce esto al inglés, por favor.",
        "请把下面的句子翻译成英文。",
        "Translate and summarize the text",
    ],
    "code": [
        "Write a Python script that renames all files in a folder.",
        "Why does this fail? ```def f(): return x```",
        "Refactor the class so that it has no side effects",
        "I get this Traceback when I start the server",
        "Schreibe mir Quellcode für einen Taschenrechner.",
        "Refactorise cette classe.",
        "Escribe una función que ordene una lista.",
        "帮我写一段代码来排序数组",
    ],
    "extraction": [
        "Extract all dates and amounts from the invoice below.",
        "Classify this ticket as bug, question or praise.",
        "Extrahiere alle Namen aus dem Text.",
        "Extrais les montants de cette facture.",
        "Extrae todas las fechas del texto.",
        "请从文本中提取所有人名。",
    ],
    "reasoning": [
        "Prove that the square root of 2 is irrational.",
        "What is the probability that two dice show the same number?",
        "Beweise, dass es unendlich viele Primzahlen gibt.",
        "Démontre le théorème de Pythagore.",
        "Demuestra que la suma de dos pares es par.",
        "请证明根号二是无理数。",
    ],
    "chat": [
        "Hi, how are you?",
        "What should I cook tonight?",
        "Wie ist das Wetter in Rom?",
        "Quel est le meilleur moment pour visiter Paris ?",
        "¿Qué me recomiendas para leer?",
        "你好，今天怎么样？",
        "",
    ],
}


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, texts in EXAMPLES.items() for text in texts]
)
def test_a_plain_request_is_seen_for_what_it_is(kind: str, text: str):
    assert kind_of(text) == kind


def test_words_at_the_end_of_a_long_message_count():
    long = "The quick brown fox jumps over the lazy dog. " * 300
    assert kind_of(long + "Summarize the text above.") == "summary"
    assert kind_of("Summarize the text below. " + long) == "summary"


def test_the_system_text_counts_less_than_the_user():
    translator = "You are a translator. Translate everything into French."
    assert kind_of("The invoice is overdue.", system=translator) == "translation"
    assert kind_of("Summarize this.", system=translator) == "summary"
    by_user = classify(facts(), Peek(user=b"Translate this"))
    by_system = classify(facts(), Peek(user=b"this", system=b"Translate"))
    assert by_user.confidence > by_system.confidence


@pytest.mark.parametrize(
    ("changes", "tool_results", "kind"),
    [
        ({"has_tools": True}, True, "agent"),
        ({"has_tools": True}, False, "agent"),
        ({}, True, "chat"),
        ({"json_output": True, "json_schema": True}, False, "extraction"),
        ({"json_output": True}, False, "extraction"),
        ({"has_tools": True, "json_output": True, "json_schema": True}, True, "agent"),
        ({"input_tokens": 32_000}, False, "long_context"),
        ({"input_tokens": 31_999}, False, "chat"),
        ({"reasoning_effort": "high"}, False, "reasoning"),
        ({"reasoning_effort": "low"}, False, "chat"),
    ],
)
def test_facts_decide_where_no_word_does(changes: dict[str, object], tool_results: bool, kind: str):
    seen = classify(facts(**changes), Peek(user=b"hello", tool_results=tool_results))
    assert seen.task_kind == kind


def test_tools_that_have_answered_are_surer_than_tools_that_have_not():
    before = classify(facts(has_tools=True), Peek(user=b"hello"))
    after = classify(facts(has_tools=True), Peek(user=b"hello", tool_results=True))
    assert after.confidence > before.confidence


@given(
    st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300), st.booleans(), st.booleans(),
    st.integers(0, 10**6),
)  # fmt: skip
def test_whatever_a_text_says_the_answer_is_from_the_closed_set(
    user: bytes, end: bytes, system: bytes, tools: bool, results: bool, tokens: int
):
    peek = Peek(user=user, user_end=end, system=system, tool_results=results)
    seen = classify(facts(has_tools=tools, input_tokens=tokens), peek)
    assert seen.task_kind in TASK_KINDS
    assert 0 <= seen.confidence <= 1
    assert seen.because
    assert REASONS.issuperset(seen.because)
    assert seen == classify(facts(has_tools=tools, input_tokens=tokens), peek)


def test_words_inside_other_words_do_not_count():
    assert kind_of("Please improve my resume for this job") == "chat"
    assert kind_of("I had a great improvement in my resumes' codependency provenance") == "chat"


_CODE_BETWEEN_FENCES = Classification(task_kind="code", confidence=0.75, because=("code between fences",))
_piece = st.sampled_from(
    [
        "hello", " ", "\\n", ".", "é", "```", "`", "a" * 90, "Translate", "summary", "SQL", "extract", "prove",
        "resume", "este", "Übersetze", "Résumé", "翻译", "代码", "证", "明", "你好",
    ]
)  # fmt: skip
_text = st.lists(_piece, max_size=8).map(lambda pieces: " ".join(pieces).encode())


@given(_text, _text, _text, st.booleans())
def test_one_look_at_all_texts_misses_nothing_that_a_look_at_each_finds(
    user: bytes, end: bytes, system: bytes, tools: bool
):
    peek = Peek(user=user, user_end=end, system=system)
    asked = _asked_for(peek)
    seen = classify(facts(has_tools=tools), peek)
    if b"```" in user or b"```" in end:
        by_word = asked is not None and asked.task_kind in ("translation", "summary", "code")
        assert seen == (asked if by_word else _CODE_BETWEEN_FENCES)
    else:
        assert seen == (asked or classify(facts(has_tools=tools), Peek()))
