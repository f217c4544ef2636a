"""Read OpenAPI documents of all versions in one form. Requests are built in `operad_openapi._request`."""
