"""Alembic's entry: runs the steps on the connection that `ledger.schema` hands over, in its transaction."""

from alembic import context

from ledger.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
