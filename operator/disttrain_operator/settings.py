"""The operator's settings, from the environment. Only credentials look there too."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from disttrain_operator.errors import InvalidSettings
from disttrain_operator.manifests.config import DefaultVolume, ManifestConfig, PodFeature


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What an administrator can say."""

    namespaces: tuple[str, ...] = ()
    """Where jobs are looked after; empty: in all namespaces."""
    metrics_port: int = 8080
    """Of /metrics, /healthz and /readyz; 0: any free one."""
    manifests: ManifestConfig = field(default_factory=ManifestConfig)
    """What goes into all jobs' objects."""


def read(environ: Mapping[str, str]) -> Settings:
    """The settings. Raises InvalidSettings, which names the variable."""
    return Settings(
        namespaces=_list(environ, "DISTTRAIN_NAMESPACES"),
        metrics_port=_port(environ, "DISTTRAIN_METRICS_PORT", 8080),
        manifests=_manifests(environ),
    )


def _manifests(environ: Mapping[str, str]) -> ManifestConfig:
    default = ManifestConfig()
    return ManifestConfig(
        image=environ.get("DISTTRAIN_RUNTIME_IMAGE") or default.image,
        image_pull_policy=environ.get("DISTTRAIN_IMAGE_PULL_POLICY") or None,
        image_pull_secrets=_list(environ, "DISTTRAIN_IMAGE_PULL_SECRETS"),
        default_volume=_volume(environ),
        allowed_features=frozenset(
            _feature(name) for name in _list(environ, "DISTTRAIN_ALLOWED_POD_FEATURES")
        ),
    )


def _volume(environ: Mapping[str, str]) -> DefaultVolume | None:
    default = DefaultVolume()
    size = environ.get("DISTTRAIN_CHECKPOINT_SIZE", default.size)
    if not size:
        return None
    return DefaultVolume(
        size=size,
        storage_class=environ.get("DISTTRAIN_CHECKPOINT_STORAGE_CLASS") or None,
        access_modes=_list(environ, "DISTTRAIN_CHECKPOINT_ACCESS_MODES") or default.access_modes,
    )


def _feature(name: str) -> PodFeature:
    if name not in set(PodFeature):
        message = (
            f"DISTTRAIN_ALLOWED_POD_FEATURES: must be of {', '.join(PodFeature)}, got {name!r}"
        )
        raise InvalidSettings(message)
    return PodFeature(name)


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not text.isdecimal() or int(text) > 65535:
        message = f"{name}: must be a port, got {text!r}"
        raise InvalidSettings(message)
    return int(text)


def _list(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in environ.get(name, "").split(",") if part.strip())
