"""What is known of the snapshots of a table when they are gone."""
