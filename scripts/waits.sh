#!/usr/bin/env bash
# Lines of tests that wait for a time instead of an event, that name the size of a plan, which depends on the processor, and marks of a tier
# that does not exist. A sleep of less than 0.1 s is a poll in a loop, `exec sleep` a program that hangs.
git grep -nE 'timeout .*(-s|--signal)[ =]?(SIG)?KILL|(^|[^a-z_.])sleep [0-9]|time\.sleep\([0-9]' -- tests ':!tests/bench' ':!tests/dist' ':!*/lint.bats' ':!*.md' |
    grep -vE 'exec sleep|sleep[ (]0\.0[0-9]' | sed 's/$/ (wait_until, or a poll of less than 0.1 s)/'
git grep -nE 'the plan needs [0-9]' -- 'tests/*.bats' 'tests/oracle' ':!*/lint.bats' | sed 's/$/ (compute it: millrace plan)/'
git grep -nE '^# bats (test|file)_tags=' -- tests | grep -v 'tags=ci$' || true
