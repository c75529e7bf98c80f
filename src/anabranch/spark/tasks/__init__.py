"""Work as tasks of Spark jobs: writing frames, compacting, sorting, measuring."""
