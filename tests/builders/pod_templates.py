"""Pod templates within and beyond Pod Security levels, a row for each field that one looks at."""

from typing import Any

RIGHTS = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
PLAIN = {"name": "plain", "securityContext": RIGHTS}
CONTEXT = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    whole = {"securityContext": CONTEXT, "containers": [PLAIN], **spec}
    return {"metadata": {"annotations": annotations or {}}, "spec": whole}


def container(**fields: Any) -> dict[str, Any]:
    return pod(containers=[PLAIN, {**PLAIN, "name": "other", **fields}])


def context(**fields: Any) -> dict[str, Any]:
    return container(securityContext={**RIGHTS, **fields})


def of_pod(**fields: Any) -> dict[str, Any]:
    return pod(securityContext={**CONTEXT, **fields})


def volume(**source: Any) -> dict[str, Any]:
    return pod(volumes=[{"name": "v", **source}])


BEYOND_BASELINE = {
    "hostNetwork": pod(hostNetwork=True),
    "hostPID": pod(hostPID=True),
    "hostIPC": pod(hostIPC=True),
    "hostPort": container(ports=[{"containerPort": 80, "hostPort": 80}]),
    "hostPath": volume(hostPath={"path": "/"}),
    "empty hostPath": volume(hostPath={}),
    "privileged": context(privileged=True),
    "capability": context(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
    "hostProcess": context(windowsOptions={"hostProcess": True}),
    "hostProcess of the pod": of_pod(windowsOptions={"hostProcess": True}),
    "seccomp": context(seccompProfile={"type": "Unconfined"}),
    "seccomp of the pod": of_pod(seccompProfile={"type": "Unconfined"}),
    "apparmor": context(appArmorProfile={"type": "Unconfined"}),
    "apparmor of the pod": of_pod(appArmorProfile={"type": "Unconfined"}),
    "apparmor by annotation": pod(
        {"container.apparmor.security.beta.kubernetes.io/plain": "unconfined"}
    ),
    "selinux type": context(seLinuxOptions={"type": "spc_t"}),
    "selinux user": of_pod(seLinuxOptions={"user": "system_u"}),
    "selinux role": context(seLinuxOptions={"role": "system_r"}),
    "procMount": context(procMount="Unmasked"),
    "sysctl": of_pod(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    "probe of another host": container(livenessProbe={"httpGet": {"host": "1.2.3.4", "port": 1}}),
    "hook at another host": container(
        lifecycle={"preStop": {"tcpSocket": {"host": "1.2.3.4", "port": 1}}}
    ),
    "privileged before": pod(initContainers=[{"name": "i", "securityContext": {"privileged": 1}}]),
    "privileged later": pod(
        ephemeralContainers=[{"name": "e", "securityContext": {"privileged": True}}]
    ),
}
BEYOND_RESTRICTED = {
    "nfs": volume(nfs={"server": "s", "path": "/"}),
    "iscsi": volume(iscsi={"targetPortal": "t"}),
    "flexVolume": volume(flexVolume={"driver": "d"}),
    "no rights said": container(securityContext=None),
    "rights taken away": pod(containers=[{"name": "c", "securityContext": {}}]),
    "escalation": context(allowPrivilegeEscalation=True),
    "escalation unsaid": context(allowPrivilegeEscalation=None),
    "root by name": context(runAsNonRoot=False),
    "root of the pod": of_pod(runAsNonRoot=False),
    "user 0": context(runAsUser=0),
    "user 0 of the pod": of_pod(runAsUser=0),
    "seccomp unsaid": pod(securityContext={"runAsNonRoot": True}),
    "capabilities kept": context(capabilities={}),
    "some dropped": context(capabilities={"drop": ["CHOWN"]}),
    "CHOWN": context(capabilities={"drop": ["ALL"], "add": ["CHOWN"]}),
    "nothing said": pod(securityContext=None),
}
WITHIN_RESTRICTED = {
    "plain": pod(),
    "NET_BIND_SERVICE": context(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
    "emptyDir": volume(emptyDir={}),
    "no source": volume(),
    "null beside a source": volume(emptyDir={}, hostPath=None),
    "claim": volume(persistentVolumeClaim={"claimName": "c"}),
    "localhost seccomp": context(seccompProfile={"type": "Localhost", "localhostProfile": "p"}),
    "safe sysctl": of_pod(sysctls=[{"name": "net.ipv4.tcp_syncookies", "value": "1"}]),
    "default procMount": context(procMount="Default"),
    "container_t": context(seLinuxOptions={"type": "container_t", "level": "s0:c1,c2"}),
    "apparmor": pod({"container.apparmor.security.beta.kubernetes.io/plain": "localhost/p"}),
    "port": container(ports=[{"containerPort": 80}]),
    "not hostNetwork": pod(hostNetwork=False),
    "each for itself": pod(
        securityContext=None, containers=[{**PLAIN, "securityContext": {**RIGHTS, **CONTEXT}}]
    ),
}
