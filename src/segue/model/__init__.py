"""The pure core: values, the lifecycle, the projection of events, queries and cursors. No I/O."""
