"""Sessions that continue: their mirror, their store and what their native thread holds."""
