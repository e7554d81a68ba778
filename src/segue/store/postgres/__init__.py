"""The store for many machines: PostgreSQL through asyncpg, with a pool."""

from segue.model.errors import StoreError

try:
    from .store import PostgresStore
except ModuleNotFoundError as error:
    if error.name != "asyncpg":
        raise
    raise StoreError(
        "PostgreSQL needs a package that is not installed: pip install 'asyncpg>=0.30'"
    ) from None

__all__ = ["PostgresStore"]
