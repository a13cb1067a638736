"""The operator's settings, from the environment, where credentials look too."""

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from disttrain.job.checkpoint import WhenDeleted
from disttrain.job.cluster_names import MANAGED_BY_OPERATOR
from disttrain_operator import json_text
from disttrain_operator.errors import InvalidSettings
from disttrain_operator.manifests import template
from disttrain_operator.manifests.config import DefaultVolume, ManifestConfig, PodSecurity
from disttrain_operator.telemetry import logs

Word = TypeVar("Word", bound=str)

_MANAGER = re.compile("(?=.{3,63}$)[a-z0-9][a-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class SigningSettings:
    """How pods get their certificates."""

    port: int = 8443
    """Where pods ask for certificates; 0: any free one."""
    host: str = ""
    """By which name or address pods reach this port; empty: the address of this machine, or of this
    pod, from which the API server is reached."""
    secret: str = "disttrain-operator-authority"  # noqa: S105 - A name.
    """The Secret with what the authorities of all jobs follow from; made where it is missing."""
    namespace: str = "default"
    """Where that Secret is: the operator's own."""
    lifetime: timedelta = timedelta(hours=24)
    """Of a certificate. Processes renew it after two thirds of that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What an administrator can say."""

    namespaces: tuple[str, ...] = ()
    """Where jobs are looked after; empty: in all namespaces."""
    metrics_port: int = 8080
    """Of /metrics, /healthz and /readyz; 0: any free one."""
    log_level: str = "INFO"
    log_format: str = "text"
    identity: str = field(default_factory=lambda: f"process on {socket.gethostname()}")
    """Who holds the Lease of the namespaces: the pod, or whatever runs on this machine."""
    signing: SigningSettings = field(default_factory=SigningSettings)
    manifests: ManifestConfig = field(default_factory=ManifestConfig)
    """What goes into all jobs' objects."""


def read(environ: Mapping[str, str]) -> Settings:
    """The settings. Raises InvalidSettings, which names the variable."""
    return Settings(
        namespaces=_list(environ, "DISTTRAIN_NAMESPACES"),
        metrics_port=_port(environ, "DISTTRAIN_METRICS_PORT", 8080),
        log_level=_one_of(environ, "DISTTRAIN_LOG_LEVEL", logs.LEVELS, "INFO"),
        log_format=_one_of(environ, "DISTTRAIN_LOG_FORMAT", logs.FORMATS, "text"),
        signing=_signing(environ),
        manifests=_manifests(environ),
        **_identity(environ),
    )


def _identity(environ: Mapping[str, str]) -> dict[str, str]:
    names = (environ.get("POD_NAMESPACE"), environ.get("POD_NAME"))
    return {"identity": "/".join(map(str, names))} if all(names) else {}


def _signing(environ: Mapping[str, str]) -> SigningSettings:
    default = SigningSettings()
    seconds = _number(environ, "DISTTRAIN_CERTIFICATE_SECONDS", default.lifetime, (60, 7 * 86400))
    return SigningSettings(
        port=_port(environ, "DISTTRAIN_SIGNING_PORT", default.port),
        host=environ.get("DISTTRAIN_SIGNING_HOST", ""),
        secret=environ.get("DISTTRAIN_AUTHORITY_SECRET") or default.secret,
        namespace=environ.get("POD_NAMESPACE")
        or next(iter(_list(environ, "DISTTRAIN_NAMESPACES")), default.namespace),
        lifetime=seconds,
    )


def _manager(environ: Mapping[str, str]) -> str:
    found = environ.get("DISTTRAIN_MANAGED_BY") or MANAGED_BY_OPERATOR
    if not _MANAGER.fullmatch(found):
        message = f"DISTTRAIN_MANAGED_BY: must be a domain, a slash and a name, got {found!r}"
        raise InvalidSettings(message)
    return found


def _manifests(environ: Mapping[str, str]) -> ManifestConfig:
    default = ManifestConfig()
    return ManifestConfig(
        image=environ.get("DISTTRAIN_RUNTIME_IMAGE") or default.image,
        image_pull_policy=environ.get("DISTTRAIN_IMAGE_PULL_POLICY") or None,
        image_pull_secrets=_list(environ, "DISTTRAIN_IMAGE_PULL_SECRETS"),
        default_volume=_volume(environ),
        pod_security=_one_of(environ, "DISTTRAIN_POD_SECURITY", PodSecurity, default.pod_security),
        pod_security_context=_json(environ, "DISTTRAIN_POD_SECURITY_CONTEXT", dict)
        or default.pod_security_context,
        pod_defaults=_pod_defaults(environ) or default.pod_defaults,
        metrics_from=_json(environ, "DISTTRAIN_METRICS_FROM", list) or default.metrics_from,
        allowed_service_accounts=_list(environ, "DISTTRAIN_ALLOWED_SERVICE_ACCOUNTS"),
        manager=_manager(environ),
        removes_lost_pods=_switch(environ, "DISTTRAIN_FORCE_DELETE_LOST_PODS", default=True),
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
        when_deleted=_one_of(
            environ, "DISTTRAIN_CHECKPOINT_WHEN_DELETED", WhenDeleted, default.when_deleted
        ),
    )


def _pod_defaults(environ: Mapping[str, str]) -> str:
    name = "DISTTRAIN_POD_DEFAULTS"
    found = _json(environ, name, dict)
    if found and (wrong := template.first_fault(json_text.read(found))):
        message = f"{name}: {wrong}"
        raise InvalidSettings(message)
    return found


def _json(environ: Mapping[str, str], name: str, kind: type) -> str:
    """A text that holds a value of a kind; empty if nothing is said."""
    text = environ.get(name, "")
    if not text:
        return ""
    try:
        value = json_text.read(text)
    except ValueError as error:
        message = f"{name}: must be JSON, got {text[:100]!r}: {error}"
        raise InvalidSettings(message) from error
    if not isinstance(value, kind):
        words = "object" if kind is dict else "array"
        message = f"{name}: must be a JSON {words}, got {text[:100]!r}"
        raise InvalidSettings(message)
    return text


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not text.isdecimal() or int(text) > 65535:
        message = f"{name}: must be a port, got {text!r}"
        raise InvalidSettings(message)
    return int(text)


def _number(
    environ: Mapping[str, str], name: str, default: timedelta, bounds: tuple[int, int]
) -> timedelta:
    """Whole seconds within bounds."""
    text = environ.get(name) or str(int(default.total_seconds()))
    least, most = bounds
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        message = f"{name}: must be seconds from {least} to {most}, got {text!r}"
        raise InvalidSettings(message)
    return timedelta(seconds=int(text))


def _switch(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _one_of(environ, name, ("true", "false"), str(default).lower()) == "true"


def _list(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in environ.get(name, "").split(",") if part.strip())


def _one_of(environ: Mapping[str, str], name: str, allowed: Iterable[Word], default: Word) -> Word:
    """One of these words; an empty text is the default. Raises InvalidSettings."""
    known = {str(word): word for word in allowed}
    text = environ.get(name) or str(default)
    if text not in known:
        message = f"{name}: must be one of {', '.join(known)}, got {text!r}"
        raise InvalidSettings(message)
    return known[text]
