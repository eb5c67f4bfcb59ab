"""Programs for people who work on Proctor. They are not part of the wheel."""
