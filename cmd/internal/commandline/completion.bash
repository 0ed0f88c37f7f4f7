# Completions of {{.Program}} for bash. To use them: source <({{.Program}} help completion bash)
_{{.Function}}() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev='' flag='' command='' flags words='' given=''
	COMPREPLY=()
	if ((COMP_CWORD > 1)); then
		prev=${COMP_WORDS[COMP_CWORD - 1]}
		case ${COMP_WORDS[1]} in
		help{{range .Commands}}{{with .Word}} | {{.}}{{end}}{{end}}) command=${COMP_WORDS[1]} ;;
		esac
	fi
	if [[ $command == help ]]; then
		words='{{join .Pages " "}}'
		[[ $prev == completion ]] && words='bash zsh'
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
{{- else}}
			return
{{- end}} ;;
{{- end}}
		esac
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
