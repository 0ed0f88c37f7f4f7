#!/usr/bin/env bash
# A kube-proxy to begin with: it reads its options and its records, and prints them when they change. Opening ports is yours.
for word; do
  case $word in
    -registry_dir=*) root=${word#*=}/registry/services ;;
    -bind_address=*) bind=${word#*=} ;;
  esac
done

before=
while :; do
  now=$(tail -n +1 "$root"/*/* 2>/dev/null)
  if [[ $now != "$before" ]]; then
    echo "listen at $bind: $now"
    before=$now # here: start a listener for each new service (socat can), and stop those of old ones
  fi
  sleep 0.1
done
