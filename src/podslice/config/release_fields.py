"""The fields of a KubeletConfiguration that a release does not have. A kubelet ignores them, and warns in its log."""

from __future__ import annotations

from msgspec.structs import fields, replace

from podslice.config.kubelet import IgnoredField, KubeletConfig
from podslice.config.schema import later_fields
from podslice.values.releases.release import Release


def fields_in(config: KubeletConfig, release: Release) -> KubeletConfig:
    """Return the configuration as a kubelet of a release reads it: without the fields that this release does not
    have."""
    late = unknown_fields(config, release)
    if not late:
        return config
    others = {name: value for name, value in config.other_fields.items() if name not in late}
    defaults = {field.name: field.default for field in fields(KubeletConfig) if field.encode_name in late}
    return replace(config, other_fields=others, **defaults)


def unknown_fields(config: KubeletConfig, release: Release) -> dict[str, int]:
    """Return the fields that are set and that a release does not have, with the minor version that brings each."""
    late = {name: minor for name, minor in later_fields().items() if minor > release.minor}
    own = {field.encode_name: (field.name, field.default) for field in fields(KubeletConfig)}
    return {
        name: minor
        for name, minor in late.items()
        if name in config.other_fields or (name in own and getattr(config, own[name][0]) != own[name][1])
    }


def ignored_fields(config: KubeletConfig, release: Release) -> tuple[IgnoredField, ...]:
    """Return the fields that a kubelet of a release ignores because a later release brings them."""
    return tuple(
        IgnoredField(
            name,
            problem=f"is ignored: Kubernetes 1.{minor} is the first to have it, not {release}",
            remedy=f"remove it, or set it with Kubernetes 1.{minor}",
        )
        for name, minor in unknown_fields(config, release).items()
    )
