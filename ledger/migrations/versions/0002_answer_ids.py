"""The id that an answer gave itself, so that whoever asks for it later is led to where it was made.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add it; of older attempts it is unknown."""
    op.add_column("attempt", sa.Column("answer_id", sa.Text(), nullable=True))
    op.create_index("attempt_by_answer", "attempt", ["answer_id"])
