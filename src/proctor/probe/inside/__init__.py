"""Programs that observe a product inside the fence. They never see an expectation. All but the browser's use the
standard library alone."""
