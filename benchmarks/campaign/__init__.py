"""What the benchmark scripts share: result records, intervals, runs as processes, gates, and the conservation checker."""
