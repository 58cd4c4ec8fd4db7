# Completion of gsaas-status for fish. Written by `./dev generate`: change the commands, or generate/, instead.

# Print the command on the line before the cursor, with "--" if another command line follows; and the number of its
# arguments.
function __gsaas_status_command
    set -l command
    set -l words (commandline -opc)
    set -e words[1]
    set -l arguments 0
    set -l skip
    for word in $words
        if test -n "$skip"
            set skip
            continue
        end
        switch $word
            case --
                printf '%s
' "$command --" 0
                return
            case --config-dir --config-file --host --log-config --log-config-append --log-date-format --log-dir --log-file --log_config --logdir --logfile --syslog-log-facility
                set skip yes
            case '-*'
                continue
            case '*'
                if contains -- (string trim "$command $word") 'upgrade' 'upgrade check'
                    set command (string trim "$command $word")
                else
                    set arguments (math $arguments + 1)
                end
        end
    end
    printf '%s
' "$command" $arguments
end

# Whether the command is $argv[1]; and, if it is given, whether it has $argv[2] arguments.
function __gsaas_status_at
    set -l found (__gsaas_status_command)
    test "$found[1]" = "$argv[1]"; and test "$found[2]" = "$argv[2]" -o (count $argv) -eq 1
end

complete -c gsaas-status -f

complete -c gsaas-status -n '__gsaas_status_at \'\'' -a upgrade -d 'upgrade check'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -s h -d 'show this help message and exit'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l help -d 'show this help message and exit'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l config-dir -r -a '(__fish_complete_directories (commandline -ct))' -d 'Path to a config directory to pull `*.conf` files from. This file set is sorted, so as to provide a predictable parse order if individual options are over-ridden. The set is parsed after the file(s) specified via previous --config-file, arguments hence over-ridden options in the directory take precedence. This option must be set from the command-line.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l config-file -r -F -d 'Path to a config file to use. Multiple config files can be specified, with values in later files taking precedence. This option must be set from the command-line.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l debug -d 'If set to true, the logging level will be set to DEBUG instead of the default INFO level.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -s d -d 'If set to true, the logging level will be set to DEBUG instead of the default INFO level.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l host -x -d 'Name under which this host\'s agents report; unset, the machine\'s host name. On a compute host it is the name that Nova knows (`openstack compute service list`): under any other, the VMs of this host never get their GPUs. A host with both agents, which can offer local GPUs, has one name for both. Full names and capitals are fine: letters, digits, dots, hyphens and underscores.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l log-config-append -r -F -d 'The name of a logging configuration file. This file is appended to any existing logging configuration files. For details about logging configuration files, see the Python logging module documentation. Note that when logging configuration files are used then all logging configuration is set in the configuration file and other logging configuration options are ignored (for example, log-date-format).'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l log-config -r -F -d 'The name of a logging configuration file. This file is appended to any existing logging configuration files. For details about logging configuration files, see the Python logging module documentation. Note that when logging configuration files are used then all logging configuration is set in the configuration file and other logging configuration options are ignored (for example, log-date-format).'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l log_config -r -F -d 'The name of a logging configuration file. This file is appended to any existing logging configuration files. For details about logging configuration files, see the Python logging module documentation. Note that when logging configuration files are used then all logging configuration is set in the configuration file and other logging configuration options are ignored (for example, log-date-format).'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l log-date-format -x -d 'Defines the format string for %(asctime)s in log records. Default: None . This option is ignored if log_config_append is set.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l log-dir -r -a '(__fish_complete_directories (commandline -ct))' -d '(Optional) The base directory used for relative log_file paths. This option is ignored if log_config_append is set.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l logdir -r -a '(__fish_complete_directories (commandline -ct))' -d '(Optional) The base directory used for relative log_file paths. This option is ignored if log_config_append is set.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l log-file -r -F -d '(Optional) Name of log file to send logging output to. If no default is set, logging will go to stderr as defined by use_stderr. This option is ignored if log_config_append is set.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l logfile -r -F -d '(Optional) Name of log file to send logging output to. If no default is set, logging will go to stderr as defined by use_stderr. This option is ignored if log_config_append is set.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l syslog-log-facility -x -d 'Syslog facility to receive log lines. This option is ignored if log_config_append is set.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l use-journal -d 'Enable journald for logging. If running in a systemd environment you may wish to enable journal support. Doing so will use the journal native protocol which includes structured metadata in addition to log messages.This option is ignored if log_config_append is set.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l use-json -d 'Use JSON formatting for logging. This option is ignored if log_config_append is set.'
complete -c gsaas-status -n '__gsaas_status_at \'\'' -l use-syslog -d 'Use syslog for logging. Existing syslog format is DEPRECATED and will be changed later to honor RFC5424. This option is ignored if log_config_append is set.'

complete -c gsaas-status -n '__gsaas_status_at \'upgrade\'' -a check -d 'check whether this release can run with the configuration and the database as they are'

complete -c gsaas-status -n '__gsaas_status_at \'upgrade check\'' -s h -d 'show this help message and exit'
complete -c gsaas-status -n '__gsaas_status_at \'upgrade check\'' -l help -d 'show this help message and exit'
complete -c gsaas-status -n '__gsaas_status_at \'upgrade check\'' -l json -d 'Output the results in JSON format. Default is to print results in human readable table format.'
