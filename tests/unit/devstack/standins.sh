# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2016  # what is in single quotes is for awk and for programs
# shellcheck disable=SC2034  # the plug-in reads what is set here
#
# Stand-ins for the functions of DevStack that the plug-in calls. Those that write files write what
# DevStack writes. Those that would change the machine only write their call into $JOURNAL, one per
# line.

function note {
    echo "$*" >>"$JOURNAL"
}

# Services

function is_service_enabled {
    local service
    for service in "$@"; do
        [[ ",$ENABLED_SERVICES," == *",$service,"* ]] && return 0
        [[ "$service" == nova && ",$ENABLED_SERVICES" == *,n-* ]] && return 0
    done
    return 1
}

function enable_service {
    local service
    for service in "$@"; do
        if [[ ",${DISABLED_SERVICES:-}," != *",$service,"* ]] && ! is_service_enabled "$service"; then
            ENABLED_SERVICES+=,$service
        fi
    done
}

function define_plugin { :; }
function echo_summary { :; }

function die {
    shift
    echo "$*" >&2
    exit 1
}

# Files: iniset [-sudo] FILE SECTION OPTION VALUE, iniget and inidelete FILE SECTION OPTION. No program is started: a node
# sets a hundred options.

# edit FILE SECTION OPTION [LINE]: put the line, if there is one, in the place of the option
function edit {
    local - # as DevStack's do, they trace nothing of what is in the file
    set +o xtrace
    local file=$1 section="[$2]" option="$3 =" add=("${@:4}") inside="" line lines=() kept=()
    [[ ! -e "$file" ]] || mapfile -t lines <"$file"
    for line in "${lines[@]}"; do
        if [[ "$line" == "["* ]]; then
            if [[ -n "$inside" ]]; then
                kept+=("${add[@]}")
                add=()
            fi
            inside=""
            [[ "$line" != "$section" ]] || inside=yes
        elif [[ -n "$inside" && "$line" == "$option"* ]]; then
            kept+=("${add[@]}")
            add=()
            continue
        fi
        kept+=("$line")
    done
    if [[ ${#add[@]} -gt 0 ]]; then
        [[ -n "$inside" ]] || kept+=("$section")
        kept+=("${add[@]}")
    fi
    printf '%s' "${kept[@]/%/$'\n'}" >"$file"
}

function iniset {
    [[ "$1" != -sudo ]] || shift
    edit "$1" "$2" "$3" "$3 = $4"
}

function inidelete { edit "$@"; }

function iniget {
    local -
    set +o xtrace
    local inside="" line lines
    mapfile -t lines <"$1"
    for line in "${lines[@]}"; do
        if [[ "$line" == "["* ]]; then
            inside=""
            [[ "$line" != "[$2]" ]] || inside=yes
        elif [[ -n "$inside" && "$line" == "$3 ="* ]]; then
            echo "${line#"$3 = "}"
        fi
    done
}

function configure_keystoneauth {
    iniset "$1" "$3" auth_type password
    iniset "$1" "$3" interface public
    iniset "$1" "$3" auth_url "$KEYSTONE_SERVICE_URI"
    iniset "$1" "$3" username "$2"
    iniset "$1" "$3" password "$SERVICE_PASSWORD"
    iniset "$1" "$3" user_domain_name Default
    iniset "$1" "$3" project_name service
    iniset "$1" "$3" project_domain_name Default
}

function configure_keystone_authtoken_middleware {
    configure_keystoneauth "$1" "$2" keystone_authtoken
    iniset "$1" keystone_authtoken www_authenticate_uri "$KEYSTONE_SERVICE_URI"
    iniset "$1" keystone_authtoken cafile "$SSL_BUNDLE_FILE"
    iniset "$1" keystone_authtoken memcached_servers localhost:11211
}

function iniset_rpc_backend { iniset "$2" DEFAULT transport_url "$BUS"; }
function setup_logging { iniset "$1" DEFAULT log_color False; }
function apache_site_config_for { echo "$APACHE_SITES/$1.conf"; }

function write_uwsgi_config {
    iniset "$1" uwsgi module "$2"
    iniset "$1" uwsgi processes 2
    echo "ProxyPass $3" >>"$(apache_site_config_for "$5")"
}

function remove_uwsgi_config {
    rm -f "$1"
    note remove_uwsgi_config "$2"
}

function database_connection_url { echo "$DATABASE/$1$DATABASE_QUERY"; }
function get_notification_url { echo "$BUS"; }
function conductor_conf { echo "$NOVA_CONF_DIR/nova_cell$1.conf"; }

# Functions that would change the machine

function sudo { "$@"; }
function is_ubuntu { :; }
function get_python_exec_prefix { echo "$DEST/venv/bin"; }

function join_extras {
    local IFS=,
    echo "$*"
}

# Its programs only record their calls; gsaas-manage also prints what stands for a key.
function make_program {
    mkdir -p "$DEST/venv/bin"
    printf '#!/bin/bash\n[[ "$*" != *" bus key "* ]] || exec echo "key-of ${*: -3}"\necho "%s $*" >>"$JOURNAL"\n' "$1" \
        >"$DEST/venv/bin/$1"
    chmod +x "$DEST/venv/bin/$1"
}
make_program gsaas-manage # tests of a single phase install nothing

function setup_develop {
    local program
    note setup_develop "$@"
    for program in gsaas gsaas-rodvr gsaas-monitor; do
        make_program "$program"
    done
}

function install_package { note install_package "$@"; }
function install_apache_uwsgi { note install_apache_uwsgi; }
function create_service_user { note create_service_user "$@"; }
function get_or_create_service { note get_or_create_service "$@"; }
function get_or_create_endpoint { note get_or_create_endpoint "$@"; }
function recreate_database { note recreate_database "$@"; }
function wait_for_service { note wait_for_service "$2"; }

# It writes the unit that DevStack writes, and has nothing to say of the service that does not start.
function run_process {
    local unit=$SYSTEMD_DIR/devstack@$1.service command=$2
    is_service_enabled "$1" || return 0
    if [[ "$command" == *uwsgi* ]]; then
        command+=" --venv $DEST/venv"
        iniset "$unit" Service Type notify
        iniset "$unit" Service Restart always
        iniset "$unit" Service NotifyAccess all
    fi
    iniset "$unit" Unit Description "Devstack $1"
    iniset "$unit" Service User "$STACK_USER"
    iniset "$unit" Service ExecStart "$command"
    iniset "$unit" Service KillMode process
    iniset "$unit" Install WantedBy multi-user.target
    note run_process "$1" "$command"
    true
}

function stop_process {
    if is_service_enabled "$1"; then
        note stop_process "$1"
    fi
}

SYSTEMCTL=ask_systemd

# BROKEN names the service that does not start.
function ask_systemd {
    case "$*" in
    "--quiet is-active devstack@${BROKEN:-}.service") return 3 ;;
    "--quiet is-active "*) ;;
    *) note systemctl "$@" ;;
    esac
}
