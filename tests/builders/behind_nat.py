"""Three network namespaces: a machine with a public address, a router, and a machine behind it.

The router masquerades what comes from behind it, and lets nothing in that is no answer. It takes
root, iptables and a kernel that allows all this.
"""

import os
import subprocess
from contextlib import AbstractContextManager, suppress
from typing import Self

import pytest

PUBLIC = "192.0.2.1"
OUTSIDE = "192.0.2.254"
"""Of the router, as the public machine sees it."""
_GATEWAY, _HIDDEN = "10.9.0.1", "10.9.0.2"


class Nat(AbstractContextManager["Nat"]):
    """Skips the test, with the reason, where namespaces are forbidden."""

    def __init__(self) -> None:
        own = f"dt{os.getpid() % 100_000}"
        self._public, self._router, self._hidden = (f"{own}{end}" for end in "prh")

    def __enter__(self) -> Self:
        try:
            self._make()
        except (OSError, subprocess.CalledProcessError) as error:
            self._remove()
            told = getattr(error, "stderr", "") or str(error)
            pytest.skip(f"network namespaces with masquerade cannot be made here: {told.strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    @property
    def public(self) -> list[str]:
        """What a command is begun with to run on the public machine."""
        return ["ip", "netns", "exec", self._public]

    @property
    def hidden(self) -> list[str]:
        return ["ip", "netns", "exec", self._hidden]

    def _make(self) -> None:
        for name in (self._public, self._router, self._hidden):
            _call("ip", "netns", "add", name)
            _call("ip", "-n", name, "link", "set", "lo", "up")
        self._join(self._public, PUBLIC, self._router, OUTSIDE)
        self._join(self._hidden, _HIDDEN, self._router, _GATEWAY)
        _call("ip", "-n", self._hidden, "route", "add", "default", "via", _GATEWAY)
        outside = f"{self._public}1"
        self._route("sysctl", "-w", "net.ipv4.ip_forward=1")
        masquerade = "iptables -t nat -A POSTROUTING -j MASQUERADE -o"
        self._route(*masquerade.split(), outside)
        answers = "iptables -A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT -i"
        self._route(*answers.split(), outside)
        self._route(*["iptables", "-A", "FORWARD", "-j", "DROP", "-i"], outside)

    def _join(self, machine: str, address: str, router: str, other: str) -> None:
        """A cable between a machine and the router, with an address at each end."""
        near, far = f"{machine}0", f"{machine}1"
        link = ["ip", "link", "add", near, "netns", machine]
        _call(*link, "type", "veth", "peer", "name", far, "netns", router)
        for where, device, own in ((machine, near, address), (router, far, other)):
            _call("ip", "-n", where, "addr", "add", f"{own}/24", "dev", device)
            _call("ip", "-n", where, "link", "set", device, "up")

    def _route(self, *command: str) -> None:
        _call("ip", "netns", "exec", self._router, *command)

    def _remove(self) -> None:
        for name in (self._public, self._router, self._hidden):
            with suppress(OSError, subprocess.CalledProcessError):
                _call("ip", "netns", "del", name)


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
