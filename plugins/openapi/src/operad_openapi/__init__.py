"""REST APIs described by OpenAPI documents as operad operations."""
