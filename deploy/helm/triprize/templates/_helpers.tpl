{{- define "name" -}}
{{- if contains "triprize" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-triprize{{ end }}
{{- end }}

{{- /* Labels that select the pods of a process: (list $ "api"). */}}
{{- define "selector" -}}
app.kubernetes.io/name: triprize
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "labels" -}}
{{ include "selector" . }}
app.kubernetes.io/version: {{ (index . 0).Values.image.tag | default (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end }}

{{- define "image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "variable" }}TRIPRIZE_{{ . | replace "." "_" | upper }}{{ end }}

{{- /* The environment of a process: its settings, and its secrets by reference. */}}
{{- define "environment" -}}
{{- $root := index . 0 }}{{ $process := index . 1 }}
{{- $own := dict }}
{{- if eq $process "api" }}
{{- $own = dict "api.listen" ":8080" "api.metrics_listen" ":9090" "api.drain_delay" (printf "%ds" (int $root.Values.api.drainSeconds)) }}
{{- else if ne $process "migration" }}
{{- $own = dict (printf "%s.listen" $process) ":9090" }}
{{- end }}
{{- range $name, $value := merge $own $root.Values.settings }}
- name: {{ include "variable" $name }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- $secrets := $root.Values.secrets }}
{{- if eq $process "migration" }}
{{- $secrets = dict "postgres.url" $root.Values.migration.secret }}
{{- else if eq $process "scheduler" }}
{{- $secrets = omit $secrets "draw.secret_key" "draw.previous_secret_keys" }}
{{- end }}
{{- if ne $process "api" }}
{{- $secrets = omit $secrets "console.oidc.client_secret" }}
{{- end }}
{{- range $name, $from := $secrets }}
- name: {{ include "variable" $name }}
  valueFrom: {secretKeyRef: {{ toJson $from }}}
{{- end }}
{{- with $root.Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The spec of a pod that runs a program without rights: (list $ process arguments probes resources). */}}
{{- define "pod" -}}
{{- $root := index . 0 }}{{ $process := index . 1 }}{{ $with := index . 3 }}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with omit $root.Values.pod "volumes" }}
{{ toYaml . }}
{{- end }}
containers:
  - name: {{ $process }}
    image: {{ include "image" $root | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: {{ toJson (index . 2) }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    env:
      {{- include "environment" (list $root $process) | trim | nindent 6 }}
      - name: GOMEMLIMIT # garbage collection runs more often before the kernel kills the process
        value: {{ div (mul 85 (trimSuffix "Mi" $with.memory | int)) 100 }}MiB
    resources:
      requests: {cpu: {{ $with.cpu }}, memory: {{ $with.memory }}}
      limits: {memory: {{ $with.memory }}}
    {{- if ne $process "migration" }}
    # All probes ask the listener of operators, which no load fills.
    ports:
      {{- if eq $process "api" }}
      - {name: http, containerPort: 8080}
      {{- end }}
      - {name: metrics, containerPort: 9090}
    startupProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 1, failureThreshold: 60}
    livenessProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
    readinessProbe: {httpGet: {path: /readyz, port: metrics}, periodSeconds: 2, timeoutSeconds: 5, failureThreshold: 2}
    {{- end }}
    {{- $ca := $root.Values.caConfigMap }}
    {{- with concat (ternary (list (dict "name" "ca" "mountPath" "/etc/triprize/ca" "readOnly" true)) list (ne $ca "")) $root.Values.volumeMounts }}
    volumeMounts:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- with concat (ternary (list (dict "name" "ca" "configMap" (dict "name" $ca))) list (ne $ca "")) (get $root.Values.pod "volumes" | default list) }}
volumes:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
