"""Everything of a source that does not depend on a tool; a tool supplies a `Reader`."""
