#compdef {{.Program}}
# Completions of {{.Program}} for zsh. To use them: put this file into a directory of $fpath as _{{.Program}}.
{{define "flag"}}'-{{.Name}}{{if not .Boolean}}={{end}}[{{zsh .Text}}]
{{- if .Boolean}}'{{else}}:{{zsh .Value}}:{{if .Choices}}({{zsh (join .Choices " ")}}){{else if .File}}_files{{else if .Directory}}_files -/{{else if .Service}} _kube_proxy_names names{{else if .Endpoint}} _kube_proxy_names names -endpoints{{else}} {{end}}'{{end}}{{end -}}
# Completes a service of the running node, or an endpoint.
_{{.Function}}_names() {
	local -a names
	names=(${(f)"$(${service:-{{.Program}}} "$@" -timeout=2s ${(M)words:#-(control|takeover|config)=*} 2>/dev/null)"})
	compadd -a names
}
# Completes the arguments of a command: a service, and an endpoint of it if the command takes one.
_{{.Function}}_argument() {
	local -a before
	before=(${words[2,CURRENT-1]:#-*})
	case $#before in
	0) _{{.Function}}_names names ;;
	1) [[ $1 == endpoint ]] && _{{.Function}}_names names $before ;;
	esac
}
_{{.Function}}() {
	local -a commands
	commands=(
		'help:explains a topic, a flag or a command'
{{- range .Commands}}{{if .Word}}
		'{{.Word}}:{{zsh .Summary}}'{{end}}{{end}}
	)
	if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
		_describe command commands
		return
	fi
	case $words[2] in
	help)
		if (( CURRENT == 4 )) && [[ $words[3] == completion ]]; then
			compadd bash zsh fish
		elif (( CURRENT == 3 )); then
			compadd {{join .Pages " "}}
		fi
		;;
{{- range .Commands}}{{if .Word}}
	{{.Word}})
		shift words
		(( CURRENT-- ))
		_arguments{{range .Flags}} \
			{{template "flag" .}}{{end}}{{if .Directory}} \
			'*:directory:_files -/'{{end}}{{if .Service}} \
			'*:name: _{{$.Function}}_argument{{if .Endpoint}} endpoint{{end}}'{{end}}
		;;{{end}}{{end}}
	*){{range .Commands}}{{if not .Word}}
		_arguments{{range .Flags}} \
			{{template "flag" .}}{{end}}{{end}}{{end}}
		;;
	esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
	_{{.Function}} "$@"
else
	compdef _{{.Function}} {{.Program}}
fi
