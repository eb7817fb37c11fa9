{{/*
Values of an older release that is upgraded with --reuse-values lack what is new: it gets its default here. Every template
calls this first. Only values.yaml's own keys and those of its groups are filled, so that null takes away what is below.
*/}}
{{- define "podslice.complete" -}}
{{- with .Values.cluster }}
{{- if and (hasKey . "tlsSecret") (not (hasKey . "certificates")) }}
{{- $_ := set . "certificates" "secret" }}
{{- end }}
{{- end }}
{{- range $name, $default := .Files.Get "files/defaults.json" | fromJson }}
{{- if not (hasKey $.Values $name) }}
{{- $_ := set $.Values $name $default }}
{{- else if has $name (list "image" "monitoring" "cluster" "dra") }}
{{- range $key, $value := $default }}
{{- if not (hasKey (get $.Values $name) $key) }}
{{- $_ := set (get $.Values $name) $key $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- include "podslice.check" . }}
{{- end }}

{{/* What no schema can say. */}}
{{- define "podslice.check" -}}
{{- $version := .Capabilities.KubeVersion.Version }}
{{- if and .Values.cluster.enabled (semverCompare "<1.30-0" $version) }}
{{- fail (printf "cluster.enabled: Kubernetes %s does not name the node in agents' tokens; 1.30 or newer is needed" $version) }}
{{- end }}
{{- if and .Values.dra.enabled (semverCompare "<1.34-0" $version) }}
{{- fail (printf "dra.enabled: Kubernetes %s does not have resource.k8s.io/v1; 1.34 or newer is needed" $version) }}
{{- end }}
{{- if not (or .Values.image.digest .Values.image.tag) }}
{{- fail "image.digest: name the image you built by its digest, or by image.tag" }}
{{- end }}
{{- $names := list }}
{{- $nodes := list }}
{{- range .Values.pools }}
{{- if has .name $names }}
{{- fail (printf "pools: %s is there twice" .name) }}
{{- end }}
{{- if not (or .nodeSelector .affinity) }}
{{- fail (printf "pools: %s has no nodeSelector and no affinity, so its agents would be on the nodes of other pools too" .name) }}
{{- end }}
{{- $where := toJson (pick . "nodeSelector" "affinity") }}
{{- if has $where $nodes }}
{{- fail (printf "pools: %s has the nodes of another pool; two agents cannot run on one node" .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- $nodes = append $nodes $where }}
{{- end }}
{{- end }}

{{- define "podslice.fullname" -}}
{{- $name := default "podslice" .Values.nameOverride -}}
{{- $own := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $own .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* The namespace of the service and its scheduler. */}}
{{- define "podslice.clusterNamespace" -}}
{{- ternary (default .Release.Namespace .Values.cluster.namespace) .Release.Namespace .Values.cluster.enabled }}
{{- end }}

{{/* The two namespaces, or the one. */}}
{{- define "podslice.namespaces" -}}
{{- $all := list .Release.Namespace -}}
{{- if .Values.cluster.enabled }}{{ $all = append $all (include "podslice.clusterNamespace" .) }}{{ end -}}
{{- uniq $all | join " " }}
{{- end }}

{{/*
Name, namespace and labels of an object: (list . SUFFIX PART NAMESPACE), with the namespace "" where there is none. PART is
`podslice` for what is the agents', `podslice-cluster` for the service's: kubectl podslice finds pods by these names.
*/}}
{{- define "podslice.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "podslice.fullname" $root }}-{{ index . 1 }}
{{- with index . 3 }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "podslice.labels" (list $root (index . 2)) | nindent 2 }}
{{- end }}

{{- define "podslice.labels" -}}
{{- $root := index . 0 -}}
{{- include "podslice.selected" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Of pods, which a new version of the chart alone does not change. */}}
{{- define "podslice.podLabels" -}}
{{- include "podslice.selected" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "podslice.selected" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
{{- end }}

{{/*
The selector of a workload never changes, so one that is there keeps its own: (list KIND NAMESPACE NAME SELECTED). Before
the chart had the label `instance`, it was the name alone.
*/}}
{{- define "podslice.workloadSelector" -}}
{{- $there := lookup "apps/v1" (index . 0) (index . 1) (index . 2) -}}
{{- if $there }}{{ toYaml $there.spec.selector.matchLabels }}{{ else }}{{ index . 3 }}{{ end }}
{{- end }}

{{- define "podslice.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "podslice.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* The name of the agents' service account as the API server tells it. */}}
{{- define "podslice.agentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "podslice.fullname" . }}-agent
{{- end }}

{{/* Whether the policies are wanted, and the cluster has them and tokens that name their node. */}}
{{- define "podslice.policies" -}}
{{- if and .Values.admissionPolicies (semverCompare ">=1.32-0" .Capabilities.KubeVersion.Version) }}true{{ end -}}
{{- end }}

{{/*
What any of the agents' configurations asks for, as words: apiServer, marks, kubelet, topology. Rights follow from it.
*/}}
{{- define "podslice.agentsNeed" -}}
{{- $needs := list -}}
{{- range $pool := default (list dict) .Values.pools }}
{{- $agent := mergeOverwrite (deepCopy $.Values.agent) (deepCopy (default dict $pool.agent)) }}
{{- with $agent.sources }}
{{- if .apiServer }}
{{- $needs = append $needs "apiServer" }}
{{- if ne (default "fail" $agent.refusals) "hold" }}{{ $needs = append $needs "marks" }}{{ end }}
{{- end }}
{{- if .kubelet }}{{ $needs = append $needs "kubelet" }}{{ end }}
{{- end }}
{{- if has (default "off" $agent.nodeResourceTopology) (list "own" "merge") }}{{ $needs = append $needs "topology" }}{{ end }}
{{- end }}
{{- uniq $needs | join " " }}
{{- end }}

{{/* An agent's configuration: (list . POOL), the pool with the values of all. */}}
{{- define "podslice.agentConfiguration" -}}
{{- $root := index . 0 -}}
{{- $values := $root.Values -}}
apiVersion: podslice.io/v1alpha1
kind: AgentConfiguration
{{- if $values.hostNetwork }}
metricsAddress: 127.0.0.1:{{ $values.metricsPort }}
{{- else }}
metricsAddress: 0.0.0.0:{{ $values.metricsPort }}    # for the kubelet's probes; the NetworkPolicy keeps others out
{{- end }}
{{- if $values.statusPort }}
{{- if $values.statusSecret }}
statusAddress: 0.0.0.0:{{ $values.statusPort }}
statusTokenFile: /etc/podslice-status/token
{{- else }}
statusAddress: 127.0.0.1:{{ $values.statusPort }}    # for kubectl podslice, which comes by port-forward
{{- end }}
{{- end }}
{{- if $values.cluster.enabled }}
cluster:
  services: [{{ include "podslice.fullname" $root }}-cluster.{{ include "podslice.clusterNamespace" $root }}.svc:9097]
  caFile: /etc/podslice-cluster/ca.crt
  plan: {{ $values.cluster.plan }}
{{- end }}
{{- if $values.dra.enabled }}
dra: {accounting: {{ $values.dra.accounting }}, order: {{ $values.dra.order }}{{ if $values.dra.numaList }}, numaList: true{{ end }}}
{{- end }}
{{ toYaml (index . 1).agent }}
{{- end }}

{{/* The Secret with the service's certificate and key. */}}
{{- define "podslice.tlsSecret" -}}
{{- $own := printf "%s-cluster-tls" (include "podslice.fullname" .) -}}
{{- ternary (default $own .Values.cluster.tlsSecret) $own (eq .Values.cluster.certificates "secret") }}
{{- end }}

{{/* The ConfigMap with the certificate of the authority behind it. */}}
{{- define "podslice.caConfigMap" -}}
{{- $own := printf "%s-cluster-ca" (include "podslice.fullname" .) -}}
{{- ternary $own (default $own .Values.cluster.caConfigMap) (eq (include "podslice.makesAuthority" .) "true") }}
{{- end }}

{{- define "podslice.makesAuthority" -}}
{{- with .Values.cluster -}}
{{ or (eq .certificates "generate") (and (eq .certificates "certManager") (not .issuer)) }}
{{- end }}
{{- end }}

{{/* The service's name in its certificate. */}}
{{- define "podslice.serverName" -}}
{{ include "podslice.fullname" . }}-cluster.{{ include "podslice.clusterNamespace" . }}.svc
{{- end }}

{{/* The service's TLS settings in a monitor of the Prometheus operator. */}}
{{- define "podslice.scrapedOverTLS" -}}
scheme: https
tlsConfig:
  ca:
    configMap: {name: {{ include "podslice.caConfigMap" . }}, key: ca.crt}
  serverName: {{ include "podslice.serverName" . }}
{{- end }}

{{- define "podslice.schedulerConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {qps: 1000, burst: 2000}
leaderElection:
  leaderElect: true
  resourceName: {{ include "podslice.fullname" . }}-scheduler
  resourceNamespace: {{ include "podslice.clusterNamespace" . }}
percentageOfNodesToScore: 100
profiles:
  - schedulerName: {{ .Values.cluster.schedulerName }}
extenders:
  - urlPrefix: http://127.0.0.1:9098/v1
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    bindVerb: bind
    weight: {{ ternary 2 200 .Values.cluster.advise }}
    nodeCacheCapable: true
    ignorable: false
    httpTimeout: 2s
{{- end }}
