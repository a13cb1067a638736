{{/* The name of everything that belongs to the release. */}}
{{- define "disttrain-operator.fullname" -}}
{{- if contains "disttrain" .Release.Name -}}
{{- printf "%s-operator" (.Release.Name | trimSuffix "-operator") | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-disttrain-operator" (.Release.Name | trunc 44 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* The name of what lets Kueue decide when jobs run. */}}
{{- define "disttrain-operator.kueue" -}}
{{- include "disttrain-operator.fullname" . | trimSuffix "-operator" -}}-kueue
{{- end -}}

{{- define "disttrain-operator.serviceAccount" -}}
{{- $otherwise := ternary (include "disttrain-operator.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $otherwise -}}
{{- end -}}

{{/* The Secret from which the authorities of all jobs follow. The operator makes it, and nothing removes it. */}}
{{- define "disttrain-operator.authority" -}}
{{- include "disttrain-operator.fullname" . | trunc 53 | trimSuffix "-" -}}-authority
{{- end -}}

{{/* Where the pods of jobs get their certificates. */}}
{{- define "disttrain-operator.signingHost" -}}
{{- include "disttrain-operator.fullname" . -}}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* What never changes: selectors are immutable. */}}
{{- define "disttrain-operator.selector" -}}
app.kubernetes.io/name: disttrain-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "disttrain-operator.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: disttrain
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{ include "disttrain-operator.selector" . }}
{{- end -}}

{{/* Of (list ROOT IMAGE): the whole name of an image. */}}
{{- define "disttrain-operator.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $name := printf "%s%s" $root.Values.imagePrefix $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($image.tag | default $root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The name of the Lease, which the operator makes of managedBy as well. */}}
{{- define "disttrain-operator.lease" -}}
{{- if eq .Values.managedBy "disttrain.dev/operator" -}}
disttrain-operator
{{- else -}}
disttrain-operator-{{ regexReplaceAll "[^a-z0-9]+" (lower .Values.managedBy) "-" | trimAll "-" }}
{{- end -}}
{{- end -}}

{{/* What the operator may do where it runs jobs, and may therefore grant: it never escalates or binds. */}}
{{- define "disttrain-operator.rules" -}}
- apiGroups: [disttrain.dev]
  resources: [disttrainjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [disttrain.dev]
  resources: [disttrainjobs/status]
  # A service account that may update it is no coordinator to the admission policy.
  verbs: [patch, update]
# Owner references that block the owner's deletion ask for this.
- apiGroups: [disttrain.dev]
  resources: [disttrainjobs/finalizers]
  verbs: [update]
# The objects of a job, which Kubernetes deletes when their owner is gone. They are never rewritten.
- apiGroups: [""]
  resources: [persistentvolumeclaims, services]
  verbs: [get, list, watch, create]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create]
# Workloads are scaled, and made anew: a job that was suspended from other templates, a coordinator's Job because its
# next pod would have to wait for up to ten minutes. Replicas of several processes are StatefulSets that come and go.
- apiGroups: [apps]
  resources: [replicasets, statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# Jobs that an older operator made may have a Deployment of replicas: it is scaled with the job, and to nothing at its end.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# What the jobs of a namespace share, made with the first of them; and what a job has of these kinds for itself.
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, create]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, create]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings]
  verbs: [get, list, create]
# A job's manifest, and of whom its pods get certificates; written once and never read back.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
# Those on lost nodes are deleted at once.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
# A Job's finalizer holds the coordinator's pod on a lost node until its status says that it ended.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [events]
  verbs: [get, list, create, patch]
# One operator at a time: its own Lease, and those of others by the same name.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "disttrain-operator.lease" . }}]
  verbs: [get, list, patch]
{{- end -}}

{{- define "disttrain-operator.pullSecretNames" -}}
{{- $names := list -}}
{{- range .Values.imagePullSecrets }}{{ $names = append $names .name }}{{ end -}}
{{- join "," $names -}}
{{- end -}}
