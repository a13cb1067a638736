"""The Pod Security Standards, asked of a pod template as it is sent. Pure.

The tables are those of Kubernetes 1.34; the API server asks the same where a namespace enforces a
level. https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from disttrain_operator.manifests.config import PodSecurity
from disttrain_operator.manifests.context import Object
from disttrain_operator.untrusted import mapping

_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_PROFILES: Final = {"RuntimeDefault", "Localhost"}
_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_SELINUX_TYPES: Final = {
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
}
_CAPABILITIES: Final = {
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
}
_SYSCTLS: Final = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}
_VOLUMES: Final = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}

Place = tuple[str, Object]
"""A path in the template, and what is there."""


class _Pod(NamedTuple):
    annotations: Object
    spec: Object
    containers: list[Place]
    context: Place
    """The security context of the pod."""
    contexts: list[Place]
    """Those of its containers."""

    @property
    def all_contexts(self) -> list[Place]:
        return [self.context, *self.contexts]


def violations(template: Object, level: PodSecurity) -> list[str]:
    """What in a template is beyond a level: paths, and what must stand there."""
    pod = _pod(template)
    return [each for check in _CHECKS[level] for each in check(pod)]


def _pod(template: Object) -> _Pod:
    spec = mapping(template, "spec")
    containers = [
        (f"spec.{kind}[{place}]", container)
        for kind in _CONTAINERS
        for place, container in enumerate(_mappings(spec.get(kind)))
    ]
    return _Pod(
        annotations=mapping(template, "metadata", "annotations"),
        spec=spec,
        containers=containers,
        context=_inside(("spec", spec), "securityContext"),
        contexts=[_inside(place, "securityContext") for place in containers],
    )


def _host_namespaces(pod: _Pod) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.spec.get(name):
            yield f"spec.{name} must not be true"


def _host_ports(pod: _Pod) -> Iterator[str]:
    for path, container in pod.containers:
        if any(port.get("hostPort") for port in _mappings(container.get("ports"))):
            yield f"{path}.ports must have no hostPort"


def _host_paths(pod: _Pod) -> Iterator[str]:
    for path, volume in _volumes(pod):
        if volume.get("hostPath") is not None:
            yield f"{path} must not be a hostPath"


def _privileged(pod: _Pod) -> Iterator[str]:
    for path, context in pod.contexts:
        if context.get("privileged"):
            yield f"{path}.privileged must not be true"


def _capabilities(pod: _Pod) -> Iterator[str]:
    for place in pod.contexts:
        yield from _added(place, _CAPABILITIES)


def _host_processes(pod: _Pod) -> Iterator[str]:
    for path, context in pod.all_contexts:
        if mapping(context, "windowsOptions").get("hostProcess"):
            yield f"{path}.windowsOptions.hostProcess must not be true"


def _seccomp(pod: _Pod) -> Iterator[str]:
    for place in pod.all_contexts:
        yield from _profile(place, "seccompProfile")


def _app_armor(pod: _Pod) -> Iterator[str]:
    for place in pod.all_contexts:
        yield from _profile(place, "appArmorProfile")
    for name, value in pod.annotations.items():
        allowed = str(value) in {"", "runtime/default"} or str(value).startswith("localhost/")
        if name.startswith(_APP_ARMOR) and not allowed:
            yield f"metadata.annotations['{name}'] must be runtime/default or localhost/..."


def _selinux(pod: _Pod) -> Iterator[str]:
    for place in pod.all_contexts:
        path, options = _inside(place, "seLinuxOptions")
        if str(options.get("type") or "") not in _SELINUX_TYPES:
            yield f"{path}.type must be a type for containers"
        for name in ("user", "role"):
            if options.get(name):
                yield f"{path}.{name} must not be set"


def _proc_mounts(pod: _Pod) -> Iterator[str]:
    for path, context in pod.contexts:
        if context.get("procMount") not in (None, "Default"):
            yield f"{path}.procMount must be Default"


def _sysctls(pod: _Pod) -> Iterator[str]:
    path, context = pod.context
    for place, sysctl in enumerate(_mappings(context.get("sysctls"))):
        if str(sysctl.get("name")) not in _SYSCTLS:
            yield f"{path}.sysctls[{place}] must be a safe one"


def _probe_hosts(pod: _Pod) -> Iterator[str]:
    for container in pod.containers:
        handlers = [
            _inside(container, name) for name in ("livenessProbe", "readinessProbe", "startupProbe")
        ]
        lifecycle = _inside(container, "lifecycle")
        handlers += [_inside(lifecycle, name) for name in ("postStart", "preStop")]
        for handler in handlers:
            for path, action in (_inside(handler, "httpGet"), _inside(handler, "tcpSocket")):
                if action.get("host"):
                    yield f"{path}.host must not be set"


def _restricted_volumes(pod: _Pod) -> Iterator[str]:
    for path, volume in _volumes(pod):
        # Without any source it becomes an emptyDir.
        sources = {kind for kind, source in volume.items() if source is not None} - {"name"}
        if not sources <= _VOLUMES:
            yield f"{path} must be one of {', '.join(sorted(_VOLUMES))}"


def _escalation(pod: _Pod) -> Iterator[str]:
    for path, context in pod.contexts:
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{path}.allowPrivilegeEscalation must be false"


def _non_root(pod: _Pod) -> Iterator[str]:
    path, context = pod.context
    of_pod = context.get("runAsNonRoot")
    wanted = (True, None) if of_pod is True else (True,)
    if of_pod not in (None, True):
        yield f"{path}.runAsNonRoot must be true"
    for inner, each in pod.contexts:
        if each.get("runAsNonRoot") not in wanted:
            yield f"{inner}.runAsNonRoot must be true"


def _non_root_users(pod: _Pod) -> Iterator[str]:
    for path, context in pod.all_contexts:
        if context.get("runAsUser") == 0:
            yield f"{path}.runAsUser must not be 0"


def _seccomp_is_set(pod: _Pod) -> Iterator[str]:
    if mapping(pod.context[1], "seccompProfile"):
        return
    for path, context in pod.contexts:
        if not mapping(context, "seccompProfile"):
            yield f"{path}.seccompProfile must be set"


def _dropped(pod: _Pod) -> Iterator[str]:
    for place in pod.contexts:
        path, capabilities = _inside(place, "capabilities")
        dropped = capabilities.get("drop")
        if not isinstance(dropped, list) or "ALL" not in dropped:
            yield f"{path}.drop must have ALL"
        yield from _added(place, {"NET_BIND_SERVICE"})


_Check = Callable[[_Pod], Iterator[str]]
_BASELINE: Final[tuple[_Check, ...]] = (
    _host_namespaces,
    _host_ports,
    _host_paths,
    _privileged,
    _capabilities,
    _host_processes,
    _seccomp,
    _app_armor,
    _selinux,
    _proc_mounts,
    _sysctls,
    _probe_hosts,
)
_CHECKS: Final[dict[PodSecurity, tuple[_Check, ...]]] = {
    PodSecurity.PRIVILEGED: (),
    PodSecurity.BASELINE: _BASELINE,
    PodSecurity.RESTRICTED: (
        *_BASELINE,
        _restricted_volumes,
        _escalation,
        _non_root,
        _non_root_users,
        _seccomp_is_set,
        _dropped,
    ),
}


def _added(place: Place, allowed: set[str]) -> Iterator[str]:
    path, capabilities = _inside(place, "capabilities")
    added = capabilities.get("add")
    if isinstance(added, list) and {str(each) for each in added} - allowed:
        yield f"{path}.add must be of {', '.join(sorted(allowed))}"


def _profile(place: Place, name: str) -> Iterator[str]:
    path, profile = _inside(place, name)
    if profile and profile.get("type") not in _PROFILES:
        yield f"{path}.type must be RuntimeDefault or Localhost"


def _volumes(pod: _Pod) -> list[Place]:
    volumes = enumerate(_mappings(pod.spec.get("volumes")))
    return [(f"spec.volumes[{place}]", volume) for place, volume in volumes]


def _inside(place: Place, name: str) -> Place:
    path, value = place
    return f"{path}.{name}", mapping(value, name)


def _mappings(value: Any) -> list[Object]:
    return [mapping(item) for item in value] if isinstance(value, list) else []
