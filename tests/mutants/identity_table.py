"""Guards of who a process is, each with what it is like without it and the tests that notice."""

from mutants.mutant import Mutant

_R = "runtime/disttrain"
_O = "operator/disttrain_operator"
_UNIT = "tests/unit"
_IDENTITY = f"{_UNIT}/job/test_identity.py"
_SPEAKING = f"{_UNIT}/coordinator/decisions/test_speaking.py"
_SERVING = f"{_UNIT}/parameter_server/test_serving.py"
_CERTIFICATES = f"{_UNIT}/job/test_certificates.py"
_POLICY = f"{_UNIT}/operator/policies/test_identities.py"
_REPLACED = "tests/simulation/operator/test_replaced_master.py"
_TLS = "tests/contract/test_transport_identity.py"
_SIGNING = "tests/contract/test_signing.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="a certificate that speaks for every index",
        file=f"{_R}/job/identity.py",
        old="        and identity.group in {None, speaker.group}\n",
        new="",
        tests=(_IDENTITY,),
    ),
    Mutant(
        name="a certificate that speaks for every partition",
        file=f"{_R}/job/identity.py",
        old="        and identity.partition == speaker.partition\n",
        new="",
        tests=(_IDENTITY,),
    ),
    Mutant(
        name="an instance whose name only begins like another's",
        file=f"{_R}/job/identity.py",
        old='instance.startswith(f"{own}.")',
        new="instance.startswith(own)",
        tests=(_IDENTITY,),
    ),
    Mutant(
        name="a coordinator that hears members in any name",
        file=f"{_R}/coordinator/decisions/speaking.py",
        old="        instance=None if process is None else process.instance,\n",
        new="",
        tests=(_SPEAKING,),
    ),
    Mutant(
        name="a certificate that speaks from every place",
        file=f"{_R}/job/identity.py",
        old='        and (speaker.place is None or identity.place in {"", speaker.place})\n',
        new="",
        tests=(_IDENTITY,),
    ),
    Mutant(
        name="a join whose place is not compared",
        file=f"{_R}/coordinator/decisions/speaking.py",
        old="join.partition, join.instance, join.place)",
        new="join.partition, join.instance)",
        tests=(_SPEAKING,),
    ),
    Mutant(
        name="a replica whose certificate does not say where it is",
        file=f"{_O}/policies/identities.py",
        old="        return known._replace(place=pod.name)\n",
        new="        return known\n",
        tests=(_POLICY,),
    ),
    Mutant(
        name="a pod that joins at the place of another",
        file=f"{_R}/coordinator/decisions/speaking.py",
        old="        if group.live and is_same_pod != is_same_place:",
        new="        if False:",
        tests=(_SPEAKING,),
    ),
    Mutant(
        name="a pod that joins by the index of another",
        file=f"{_R}/coordinator/decisions/speaking.py",
        old="    if join.index is not None:\n",
        new="    if False:\n",
        tests=(_SPEAKING,),
    ),
    Mutant(
        name="a coordinator that does not ask who speaks",
        file=f"{_R}/coordinator/process/service.py",
        old="if why := speaking.impostor(self._parts.machine.state, request.identity, parsed):",
        new='if why := "":',
        tests=(f"{_UNIT}/coordinator/process/test_service.py",),
    ),
    Mutant(
        name="a coordinator that ends by the word of whoever it does not hear",
        file=f"{_R}/coordinator/process/service.py",
        old="""        try:
            parsed = payloads.parse_request(request.payload)
""",
        new="""        self._require_newest(request.header)
        try:
            parsed = payloads.parse_request(request.payload)
""",
        tests=(f"{_UNIT}/coordinator/process/test_service.py",),
    ),
    Mutant(
        name="a shard that takes pushes in any name",
        file=f"{_R}/parameter_server/serving.py",
        old="        if request.identity is not None and (why := ",
        new="        if False and (why := ",
        tests=(_SERVING,),
    ),
    Mutant(
        name="a shard that knows indices and no instances",
        file=f"{_R}/parameter_server/serving.py",
        old="            instance = known[partition] if partition < len(known) else None\n",
        new="            pass\n",
        tests=(_SERVING,),
    ),
    Mutant(
        name="a request whose sender is not told",
        file=f"{_R}/transport/listener.py",
        old="return request and request._replace(identity=peer.identity)",
        new="return request",
        tests=(_TLS,),
    ),
    Mutant(
        name="new connections with the certificate of before",
        file=f"{_R}/transport/tls.py",
        old="        if latest is not self._made_from:",
        new="        if False:",
        tests=(_TLS,),
    ),
    Mutant(
        name="a replica that speaks to another shard than it means",
        file=f"{_R}/transport/tcp.py",
        old=" or not is_meant:",
        new=":",
        tests=(_TLS,),
    ),
    Mutant(
        name="a request that is signed by another key",
        file=f"{_R}/job/certificates.py",
        old="    if not is_signed:",
        new="    if False:",
        tests=(_CERTIFICATES,),
    ),
    Mutant(
        name="one authority for all jobs",
        file=f"{_R}/job/certificates.py",
        old='    info = f"disttrain.dev/authority/{purpose}".encode()',
        new='    info = b"disttrain.dev/authority/"',
        tests=(_CERTIFICATES,),
    ),
    Mutant(
        name="a pod that believes whatever authority has signed",
        file=f"{_R}/launch/pod_credentials.py",
        old="        if not certificates.is_issued_by(certificate, self.trust.authority):",
        new="        if False:",
        tests=(_SIGNING,),
    ),
    Mutant(
        name="a token for another audience",
        file=f"{_O}/policies/identities.py",
        old='    if audience not in (status.get("audiences") or []):',
        new="    if False:",
        tests=(_POLICY,),
    ),
    Mutant(
        name="a token that the API server does not vouch for",
        file=f"{_O}/policies/identities.py",
        old='    if status.get("authenticated") is not True:',
        new="    if False:",
        tests=(_POLICY,),
    ),
    Mutant(
        name="a pod that has the name of an older one",
        file=f"{_O}/policies/identities.py",
        old=" or known.uid != pod.uid",
        new="",
        tests=(_POLICY,),
    ),
    Mutant(
        name="a pod that no workload of the job controls",
        file=f"{_O}/policies/identities.py",
        old="next((each for each in workloads if each.uid == known.controller), None)",
        new="next(iter(workloads), None)",
        tests=(_POLICY,),
    ),
    Mutant(
        name="a pod that takes the instance of another",
        file=f"{_O}/policies/identities.py",
        old='not asked.instance.startswith(f"{pod.uid}.") or ',
        new="",
        tests=(_POLICY,),
    ),
    Mutant(
        name="a replaced master secret of which nobody is told",
        file=f"{_O}/reconcile/plan.py",
        old="        authority.problem(basis.job, _believed(basis), knowledge.signs_by),\n",
        new="",
        tests=(_REPLACED,),
    ),
    Mutant(
        name="a Secret that is made again and counts as the one before",
        file=f"{_O}/reconcile/workloads.py",
        old='    new = "" if is_right else ',
        new='    new = "" if True else ',
        tests=(_REPLACED,),
    ),
    Mutant(
        name="a workload made again of an authority that the others do not believe",
        file=f"{_O}/reconcile/workloads.py",
        old="    return authority.believed(target.job, own) if own else target.signs_by\n",
        new="    return target.signs_by\n",
        tests=(_REPLACED,),
    ),
    Mutant(
        name="a Secret whose end is seen only by a pod that waits for it",
        file=f"{_O}/reconcile/plan.py",
        old="    if authority.is_another(_believed(basis), knowledge.signs_by):",
        new="    if False:",
        tests=(_REPLACED,),
    ),
    Mutant(
        name="what a stranger has packed, and is unpacked to be passed over",
        file=f"{_O}/signing/endpoint.py",
        old="        auto_decompress=False,\n",
        new="",
        tests=("tests/contract/test_signing_strangers.py",),
    ),
    Mutant(
        name="strangers that hold every handshake",
        file=f"{_O}/signing/endpoint.py",
        old="            ssl_handshake_timeout=HANDSHAKE_SECONDS,\n",
        new="",
        tests=(_SIGNING,),
    ),
    Mutant(
        name="a template with a token of its own beside ours",
        file=f"{_O}/manifests/access.py",
        old='[each for each in untrusted.items(spec.get("volumes")) if each != own]',
        new='[each for each in untrusted.items(spec.get("volumes")) if each["name"] != "identity"]',
        tests=(f"{_UNIT}/operator/reconcile/test_templates.py",),
    ),
)
