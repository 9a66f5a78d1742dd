# SPDX-License-Identifier: Apache-2.0
"""What alembic runs: the steps, on the connection that `database` gives it."""

from __future__ import annotations

from alembic import context

from truestep.store.history.tables import TABLES

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=TABLES,
    transactional_ddl=False,  # whoever gave the connection has begun a transaction
)
context.run_migrations()
