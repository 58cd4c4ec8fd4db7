
# Set `entry` to the entry of the option $1 in `options`; fail if there is none.
_PROGRAM_find() {
    local names
    for entry in "${options[@]}"; do
        names=,${entry#*:},
        [[ ${names//;/,} != *",$1,"* ]] || return 0
    done
    return 1
}

# Add the options to COMPREPLY that begin like `current` and may still be given.
_PROGRAM_options() {
    local entry flags name names
    for entry in "${options[@]}"; do
        flags=${entry%%:*}
        [[ $flags == *r* || " ${given[*]} " != *" $entry "* ]] || continue
        names=${entry#*:}
        [[ $current == --* ]] || names=${names%;*}
        for name in ${names//[,;]/ }; do
            [[ $name == "$current"* ]] || continue
            [[ $flags != *v* || ($name != --* && $entry != *\;*) ]] || name+='='
            COMPREPLY+=("$name")
        done
    done
    # The value follows = without a space.
    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace
}

# Complete the command line that begins at the word with the number $1.
_PROGRAM_other() {
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif (($1 == COMP_CWORD)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}

_PROGRAM() {
    local before=() command='' commands current='' entry expected='' given=() i kind name options place=0 prefix=''
    local separator='' word words
    COMPREPLY=()
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        # Bash splits words at =.
        if ((i > 1)) && [[ $word == '=' || ${COMP_WORDS[i - 1]} == '=' ]]; then
            before[${#before[@]} - 1]+=$word
        else
            before+=("$word")
        fi
        [[ $separator || $word != -- || $i -eq $COMP_CWORD ]] || separator=$i
    done
    current=${before[${#before[@]} - 1]}
    unset "before[${#before[@]} - 1]"
    if [[ $separator ]]; then
        _PROGRAM_other $((separator + 1))
        return
    fi
    if [[ ${before[0]:-} == -* ]]; then
        for word in "${before[@]}"; do
            _PROGRAM_action "$word" && break
        done
    fi
    _PROGRAM_command "$command"
    for word in "${before[@]}"; do
        if [[ $expected ]]; then
            expected=
        elif [[ $word == -* ]]; then
            _PROGRAM_find "${word%%=*}" || continue
            given+=("$entry")
            [[ $word == *=* || ${entry%%:*} != *v* ]] || expected=$entry
        elif [[ " ${commands[*]} " == *" $word "* ]]; then
            command=${command:+$command }$word
            _PROGRAM_command "$command"
        else
            ((place += 1))
        fi
    done
    if [[ ! $expected && $current == -*=* ]]; then
        _PROGRAM_find "${current%%=*}" || return
        expected=$entry
        # Bash replaces what follows =, if it splits words there.
        [[ $COMP_WORDBREAKS == *=* ]] || prefix=${current%%=*}=
        current=${current#*=}
    fi
    if [[ $expected ]]; then
        name=${expected#*:}
        _PROGRAM_values "${command:+$command }${name%%[,;]*}"
    elif [[ $current == -* ]]; then
        _PROGRAM_options
        return
    elif [[ ${commands[*]} ]]; then
        words=("${commands[@]}") kind=
    else
        _PROGRAM_values "${command:+$command }#$place"
    fi
    case $kind in
    file) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    folder) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "${words[*]}" -- "$current") ;;
    esac
    [[ ! $kind ]] || compopt -o filenames
    [[ ! $prefix ]] || COMPREPLY=("${COMPREPLY[@]/#/$prefix}")
}

complete -F _PROGRAM NAME
