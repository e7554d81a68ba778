"""The store for many machines: PostgreSQL through asyncpg, with a pool."""

from segue.model.errors import StoreError

try:
    from .store import PostgresStore
except ModuleNotFoundError as error:
    if error.name != "asyncpg":
        raise
    from segue.extras import install_command

    raise StoreError(
        f"PostgreSQL needs a package that is not installed; run: {install_command('postgres')}"
    ) from None

__all__ = ["PostgresStore"]
