# SPDX-License-Identifier: Apache-2.0
"""The tables of a history. `migrations` makes them; what changes here needs a new migration."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

VERSION = "0001"
"""The newest migration."""

TABLES = MetaData()

fleet = Table("fleet", TABLES, Column("is_simulation", Boolean, nullable=False))

nodes = Table(
    "nodes",
    TABLES,
    Column("key", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("identity", Text, unique=True),
    Column("rack", Text, nullable=False, server_default=""),
    Column("power", Text, nullable=False, server_default=""),
    Column("enrolled_s", Double, nullable=False),
    # From here on: derived from records and runs.
    Column("state", Text, nullable=False, index=True),
    Column("since_s", Double, nullable=False),
    Column("slate_seq", BigInteger, nullable=False, server_default="0"),
    Column("last_pass_s", Double),
    Column("last_screened_s", Double),
    Column("num_open", Integer, nullable=False, server_default="0"),
)

names = Table(
    "names",
    TABLES,
    Column("alias", Text, primary_key=True),
    Column("key", ForeignKey("nodes.key"), nullable=False),
)

records = Table(
    "records",
    TABLES,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False, unique=True),
    Column("digest", Text, nullable=False),
    Column("key", ForeignKey("nodes.key"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("run_id", Text, nullable=False, index=True),
    Column("time_s", Double, nullable=False),
    Column("subject", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("device", Text, nullable=False, index=True),
    Column("model", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("is_issued", Boolean, nullable=False),
    Column("is_lasting", Boolean, nullable=False),
    Column("head", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
Index("records_of_node", records.c.key, records.c.seq)
Index(
    "records_that_last",
    records.c.key,
    records.c.seq,
    sqlite_where=text("is_lasting = 1"),
    postgresql_where=text("is_lasting"),
)
Index("records_alike", records.c.subject, records.c.model, records.c.environment, records.c.time_s)

placements = Table(
    "placements",
    TABLES,
    Column("number", Integer, primary_key=True),
    Column("serial", Text, nullable=False, index=True),
    Column("key", ForeignKey("nodes.key"), nullable=False, index=True),
    Column("model", Text, nullable=False),
    Column("firmware", Text, nullable=False),
    Column("from_s", Double, nullable=False),
    Column("to_s", Double, nullable=False),
)

runs = Table(
    "runs",
    TABLES,
    Column("id", Text, primary_key=True),
    Column("key", ForeignKey("nodes.key"), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("campaign", Text, nullable=False, index=True),
    Column("occasion", Text, nullable=False),
    Column("level", Integer, nullable=False),
    Column("issued_s", Double, nullable=False),
    Column("start_by_s", Double, nullable=False),
    Column("limit_s", Double, nullable=False),
    Column("status", Text, nullable=False, index=True),
    Column("job_id", Text, nullable=False),
    Column("machine", Text, nullable=False),
)

actions = Table(
    "actions",
    TABLES,
    Column("id", Text, primary_key=True),
    Column("key", ForeignKey("nodes.key"), nullable=False),
    Column("action", Text, nullable=False),
    Column("begun_s", Double, nullable=False),
    Column("is_done", Boolean, nullable=False, index=True),
)

refused = Table(
    "refused",
    TABLES,
    Column("number", Integer, primary_key=True),
    Column("digest", Text, nullable=False, unique=True),
    Column("id", Text, nullable=False, index=True),
    Column("source", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("time_s", Double, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
