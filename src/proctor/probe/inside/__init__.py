"""Programs that observe a product inside the fence, with the standard library alone. They never see an expectation."""
