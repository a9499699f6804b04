"""What a run is, where it stands, and how long a pause is normal."""
