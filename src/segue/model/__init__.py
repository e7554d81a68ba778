"""The pure core: values, the lifecycle, the fold, the cursor codec. No I/O."""
