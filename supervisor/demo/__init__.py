"""The demonstration: what shows the product on one machine with nothing else needed. No product module imports it."""
