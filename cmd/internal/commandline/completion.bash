# Completions of {{.Program}} for bash. To use them: source <({{.Program}} help completion bash)

# Completes a service of the running node, or an endpoint: "names" and its arguments follow. A colon is a word of its own for bash, and what is
# before the last one stays. What is listed is compared, and never expanded.
_{{.Function}}_names() {
	local typed name kept='' word node=()
	typed=${COMP_LINE:0:COMP_POINT} typed=${typed##*[[:space:]]}
	[[ $typed == -*=* ]] && typed=${typed#*=}
	[[ $COMP_WORDBREAKS == *:* && $typed == *:* ]] && kept=${typed%:*}:
	while read -rd ' ' word; do # the node that the line is about
		[[ $word =~ ^--?(control|takeover|config)= ]] && node+=("$word")
	done <<<"$COMP_LINE "
	while read -r name; do
		[[ $name == "$typed"* ]] && COMPREPLY+=("${name#"$kept"}")
	done < <("${COMP_WORDS[0]}" "$@" -timeout=2s "${node[@]}" 2>/dev/null)
}

# Sets the arguments of the line that are no flags, after the command and before what is typed.
_{{.Function}}_arguments() {
	local word line=${COMP_LINE:0:COMP_POINT}
	arguments=()
	while read -rd ' ' word; do
		[[ $word && $word != -* ]] && arguments+=("$word")
	done <<<"$line"
	arguments=("${arguments[@]:2}")
}

_{{.Function}}() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev='' flag='' command='' flags words='' given='' arguments=()
	COMPREPLY=()
	if ((COMP_CWORD > 1)); then
		prev=${COMP_WORDS[COMP_CWORD - 1]}
		case ${COMP_WORDS[1]} in
		help{{range .Commands}}{{with .Word}} | {{.}}{{end}}{{end}}) command=${COMP_WORDS[1]} ;;
		esac
	fi
	if [[ $command == help ]]; then
		words='{{join .Pages " "}}'
		[[ $prev == completion ]] && words='bash zsh fish'
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
		return
	fi

	# The flag whose value is being typed, after = or as the next argument. Bash makes = a word of its own.
	if [[ $cur == '=' ]]; then
		flag=$prev cur='' given=yes
	elif [[ $prev == '=' ]]; then
		flag=${COMP_WORDS[COMP_CWORD - 2]} given=yes
	elif [[ $prev == -* ]]; then
		flag=$prev
	fi
	flag=${flag#-} flag=${flag#-}
	flag=${flag//-/_}

	case $command in
{{- range .Commands}}
	{{if .Word}}{{.Word}}{{else}}''{{end}})
		flags='{{range .Flags}}-{{.Name}} {{end}}'
		case $flag in
{{- range .Flags}}
		{{.Name}})
{{- if .Boolean}}
			[[ $given ]] && mapfile -t COMPREPLY < <(compgen -W '{{join .Choices " "}}' -- "$cur") && return
{{- else if .Choices}}
			mapfile -t COMPREPLY < <(compgen -W '{{join .Choices " "}}' -- "$cur")
			return
{{- else if .File}}
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			return
{{- else if .Directory}}
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -d -- "$cur")
			return
{{- else if .Service}}
			_{{$.Function}}_names names
			return
{{- else if .Endpoint}}
			_{{$.Function}}_names names -endpoints
			return
{{- else}}
			return
{{- end}} ;;
{{- end}}
		esac
{{- if .Service}}
		if [[ $cur != -* ]]; then
			_{{$.Function}}_arguments
			case ${#arguments[@]} in
			0) _{{$.Function}}_names names ;;
{{- if .Endpoint}}
			1) _{{$.Function}}_names names "${arguments[0]}" ;;
{{- end}}
			esac
			return
		fi
{{- end}}
{{- if .Directory}}
		if [[ $cur != -* ]]; then
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -d -- "$cur")
			return
		fi
{{- end}} ;;
{{- end}}
	esac

	words=$flags
	if ((COMP_CWORD == 1)); then
		words="$flags help{{range .Commands}}{{with .Word}} {{.}}{{end}}{{end}}"
		[[ $cur != -* ]] && words="help{{range .Commands}}{{with .Word}} {{.}}{{end}}{{end}}"
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _{{.Function}} {{.Program}}
