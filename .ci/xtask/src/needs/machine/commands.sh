# Runs what the test sends: a line with base64 of a script comes in on the machine's port; a line with the exit code
# and base64 of the script's output goes out.
export HOME="${HOME:-/root}"
until port=$(ls /dev/vport*p1 2>/dev/null); do sleep 0.1; done
exec 3<> "$port"
while read -r line <&3; do
  echo "$line" | base64 -d > /run/script
  sh /run/script > /run/output 2>&1 < /dev/null 3>&-
  code=$?
  # A long output is cut: the host reads what it asked for, not a log.
  printf '%s %s\n' "$code" "$(tail -c 1000000 /run/output | base64 -w 0)" >&3
done
