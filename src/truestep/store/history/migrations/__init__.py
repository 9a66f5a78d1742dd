# SPDX-License-Identifier: Apache-2.0
"""The steps that make the tables of a history, one file a version, for alembic."""
