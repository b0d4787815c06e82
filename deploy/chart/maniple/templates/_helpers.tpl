{{- define "maniple.selector" -}}
app.kubernetes.io/name: maniple
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "maniple.labels" -}}
{{ include "maniple.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
