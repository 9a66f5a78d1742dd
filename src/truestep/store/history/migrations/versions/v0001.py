# SPDX-License-Identifier: Apache-2.0
"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table("fleet", sa.Column("is_simulation", sa.Boolean(), nullable=False))
    op.create_table(
        "nodes",
        sa.Column("key", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=True),
        sa.Column("rack", sa.Text(), server_default="", nullable=False),
        sa.Column("power", sa.Text(), server_default="", nullable=False),
        sa.Column("enrolled_s", sa.Double(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("since_s", sa.Double(), nullable=False),
        sa.Column("slate_seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_pass_s", sa.Double(), nullable=True),
        sa.Column("last_screened_s", sa.Double(), nullable=True),
        sa.Column("num_open", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("key"),
        sa.UniqueConstraint("identity"),
        sa.UniqueConstraint("name"),
    )
    op.create_index("ix_nodes_state", "nodes", ["state"], unique=False)
    op.create_table(
        "refused",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("digest"),
    )
    op.create_index("ix_refused_id", "refused", ["id"], unique=False)
    op.create_table(
        "actions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("key", sa.Integer(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("begun_s", sa.Double(), nullable=False),
        sa.Column("is_done", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["nodes.key"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_actions_is_done", "actions", ["is_done"], unique=False)
    op.create_table(
        "names",
        sa.Column("alias", sa.Text(), nullable=False),
        sa.Column("key", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["nodes.key"]),
        sa.PrimaryKeyConstraint("alias"),
    )
    op.create_table(
        "placements",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("serial", sa.Text(), nullable=False),
        sa.Column("key", sa.Integer(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("firmware", sa.Text(), nullable=False),
        sa.Column("from_s", sa.Double(), nullable=False),
        sa.Column("to_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["nodes.key"]),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("ix_placements_key", "placements", ["key"], unique=False)
    op.create_index("ix_placements_serial", "placements", ["serial"], unique=False)
    op.create_table(
        "records",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("key", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("is_issued", sa.Boolean(), nullable=False),
        sa.Column("is_lasting", sa.Boolean(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["nodes.key"]),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("ix_records_device", "records", ["device"], unique=False)
    op.create_index("ix_records_run_id", "records", ["run_id"], unique=False)
    op.create_index(
        "records_alike", "records", ["subject", "model", "environment", "time_s"], unique=False
    )
    op.create_index("records_of_node", "records", ["key", "seq"], unique=False)
    op.create_index(
        "records_that_last",
        "records",
        ["key", "seq"],
        unique=False,
        sqlite_where=sa.text("is_lasting = 1"),
        postgresql_where=sa.text("is_lasting"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("key", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("campaign", sa.Text(), nullable=False),
        sa.Column("occasion", sa.Text(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("issued_s", sa.Double(), nullable=False),
        sa.Column("start_by_s", sa.Double(), nullable=False),
        sa.Column("limit_s", sa.Double(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["nodes.key"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_runs_campaign", "runs", ["campaign"], unique=False)
    op.create_index("ix_runs_key", "runs", ["key"], unique=False)
    op.create_index("ix_runs_status", "runs", ["status"], unique=False)
