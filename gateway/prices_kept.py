"""Which prices the ledger keeps: every row that an answer under this configuration may be priced by.

An answer is priced by the model that it names, which need not be the one that was called; so of a provider's
book every row is kept, and not only those of the models that deployments name. Of prices of the file's own, and
of what was published before them, each deployment has its own.
"""

from gateway.config import Config
from ledger.store import StoredPrice
from pricing.price_row import Row


def prices_of(config: Config) -> list[StoredPrice]:
    """The rows as they are kept, each id once, in the order of the deployments."""
    rows: dict[str, Row] = {}
    for deployment in config.policy.deployments:
        book = config.books.get(deployment)
        for _, row in book.rows() if book is not None else ():
            if row.price_id is not None:
                rows.setdefault(row.price_id, row)
    return [_stored(config, price_id, row) for price_id, row in rows.items()]


def _stored(config: Config, price_id: str, row: Row) -> StoredPrice:
    # An id is origin:name@from; the name is provider/model in the book, the deployment in the file.
    origin, _, rest = price_id.partition(":")
    name = rest.rpartition("@")[0]
    provider: str | None
    model: str | None
    deployment: str | None = None
    if origin == "file":
        own = config.policy.deployments.get(name)
        deployment = name
        provider, model = (own.provider, own.model) if own is not None else (None, None)
    else:
        provider, _, model = name.partition("/")
    return StoredPrice(
        id=price_id,
        provider=provider,
        deployment=deployment,
        model=model,
        from_date=row.version or "always",
        sheet=row.as_text(),
        source=row.source,
        checked_on=row.checked_on,
    )
