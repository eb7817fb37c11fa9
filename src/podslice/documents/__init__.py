"""The documents that programs may rely on: every `-o json|yaml` document has `apiVersion` and `kind`.

The documents are typed values; the JSON Schemas in `schemas/` are made from these types by `python -m release.schemas`,
so that neither can change without the other. Types that a lower layer already has, such as decisions and findings, are
used as they are.
"""
