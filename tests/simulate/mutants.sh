#!/usr/bin/env bash
# Bugs of the protocol, planted one at a time, must be found by the simulator: mutants.sh BUILD [NAME] edits a line of the
# loader, links the simulator with it, and prints after how many histories (at most COUNT, from seed 1 on) one failed, and how.
# Exits with 1 when one is not found. SIMLIBS: what the Makefile links the simulator with. mutants.sh --list prints their names,
# --check the edits that change nothing, because the line is now another one: then it exits with 1.
set -u
mutants() { # name | file, of loader/ if it is not a path from the root | the edit, for sed
    cat <<'END'
offset|client/feed_connection.c|s/ \&\& batch->offset == request->received//
no_resend|client/feed_connection.c|/clock_ns() >= feed->times.retry_ns) connection_retry/d
unchanged|client/feed_connection.c|s/^        feed->changed = true;$//
not_replaced|client/feed_connection.c|/WIRE_BATCH_REPLACED/d
payload|client/feed_connection.c|s/crc32c(0, rows, batch->length) != batch->payload_crc/false/
other_loader|client/feed_connection.c|/if (replaces_dataset(feed, welcome)) return pass_over/d
repeated|client/feed_connection.c|s/ZMQ_RECONNECT_IVL, -1/ZMQ_RECONNECT_IVL, 2/
seldom_repeated|client/feed_connection.c|s/ZMQ_RECONNECT_IVL, -1/ZMQ_RECONNECT_IVL, 1000/
patience|client/feed_connection.c|/feed->times.patience++/d
ended|client/query.c|s/zmq_poll(items, 2, wait_ms)/zmq_poll(items, 1, wait_ms)/
lost_slots|client/feed_ring.c|s/request->ready = false;//
lent|client/feed.c|s/slots\[request->slot\] = SLOT_LENT;/slots[request->slot] = SLOT_FREE;/
generation|client/feed.c|s/generation = ++feed->shared.generation\[slot\]/generation = feed->shared.generation[slot]/
late_cancel|client/feed.c|/requests made since the change/d
cancelled|client/feed.c|s/^    feed->queue.outstanding = 0;/    feed->queue.outstanding -= feed->queue.outstanding > 0;/
position|client/batch_stream.c|/FEED_CHANGED) stream->requested = stream->next/d
skip|client/batch_stream.c|s/sample + rows + turns->skip;/sample + rows;/
header|protocol/wire.c|s/header->crc != message_crc(frame.data, frame.size)/false/
sources|protocol/wire.c|s/ || crc32c(0, part.data, part.size) != welcome->sources_crc//
prefix|protocol/mixture.c|s/mixture->entries\[i + 1\].from/mixture->entries[i].from/
base|protocol/mixture.c|s/memcpy(entry->base, last->base, sizeof entry->base);//
old_generation|server/jobs.c|s/if (slot->seen \&\& (int32_t)(get->generation - slot->generation) < 0)/if (false)/
closed_ring|server/jobs.c|/if (attachment_has_ended(/d
two_writers|server/jobs.c|/^    cancel_slot(server, request);/d
other_dataset|server/jobs.c|s/if (!served .. memcmp(fp8, served->dataset.fingerprint, 8)) return NULL;/if (!served) return NULL;/
users|server/jobs.c|/copy.served->users--;/d
last_job|server/jobs.c|/server->last_job == &job->next) server->last_job = link/d
unflagged|server/jobs.c|s/replaced ? WIRE_BATCH_REPLACED : 0/0/
count|server/jobs.c|s/served->highest = get->first_sample + get->rows;/(void)0;/
late_answer|server/jobs.c|s/job->route = \*route, job->header = request->header;/server->jobs->route = *route;/
unread|server/unread.c|/atomic_fetch_sub(unread->total/d
unlimited|server/unread.c|/held + bytes > limit) return NULL/d
account|server/unread.c|/atomic_fetch_sub(unread->account/d
ring_jobs|server/server.c|/jobs_cancel(server, attachment->id);/d
unreachable|server/server.c|s/if (server->unreachable)/if (false)/
in_use|server/server.c|s/if (served->users || /if (/
state|server/reload.c|s/return served_spec_save(.*);/return 0;/
refused|server/reload.c|s/if (reload->appended \&\& truncate/if (false \&\& truncate/
again|server/reload.c|/if (reload->again) server_reload(server);/d
too_late|server/reload.c|s/if (from >= first) return 0;/return 0;/
check|server/reload.c|s/if (!reload->request.control.check) {/if (true) {/
vocabulary|server/reload.c|s/if (memcmp(other->vocab_fp, current->vocab_fp, 32) ||/if (false \&\&/
short|server/reload.c|s/if (session_is_live(session) \&\& tokens/if (false \&\& tokens/
short_source|server/served.c|s/^    const Dataset \*shortest = &served->dataset;/    return \&served->dataset;\n&/
half_line|server/served.c|s/fallocate(fd, .*) < 0 \&\&/false \&\&/
kept_line|server/served.c|s/ftruncate(fd, size) < 0/false/
evicted|server/frame_cache.c|s/if (!old->pins) drop_frame/drop_frame/
forgotten|server/frame_cache.c|s/bool waits = !frame->decoding;/bool waits = true;/
retry|server/frame_cache.c|s/frame->state == FRAME_FAILED \&\& clock_ns()/false \&\& clock_ns()/
track|server/row_reader.c|s/if (track->served == served) \*track = (Track){0};/(void)0;/
found|server/row_reader.c|s/copy->column = copy->skipped = 0, copy->found = false/copy->column = copy->skipped = 0/
not_agreed|trainer/optim/step.c|s/sums\[CHANGED\] > 0 ? FEED_CHANGED : FEED_BATCH/found/
not_compared|trainer/ranks/ranks.c|s/ranks_agree(ranks, compare_text((const char \*)mine->data, first))/0/
END
}
if [ "${1:-}" = --list ]; then
    mutants | cut -d'|' -f1
    exit
fi
build=$1 only=${2:-} bad=0
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
while IFS='|' read -r name file edit; do
    [ -z "$only" ] || [ "$only" = "$name" ] || continue
    [ -e "$file" ] || file=loader/$file
    sed "$edit" "$file" >"$folder/$name.c"
    if cmp -s "$file" "$folder/$name.c"; then
        echo "$name: the edit changes nothing" && bad=1
        continue
    fi
    [ "$build" != --check ] || continue
    # shellcheck disable=SC2086
    ${CC:-gcc} -std=c11 -D_GNU_SOURCE -DHAVE_CUDA=0 -I. -O1 -g -w -c "$folder/$name.c" -o "$folder/$name.o" &&
        ${CC:-gcc} "$folder/$name.o" "$build"/tests/simulate/*.o "$build/tests/unit/loader/fixture_loader.o" \
            "$build/core.a" $SIMLIBS -o "$folder/simulate" || exit 1
    if "$folder/simulate" --count="${COUNT:-1000}" >"$folder/out" 2>&1; then
        echo "$name: NOT FOUND" && bad=1
    else
        printf '%-14s %5s  %s\n' "$name" "$(sed -nE 's/^([0-9]+) histories.*/\1/p' "$folder/out")" \
            "$(grep -v '^[0-9]* histories\|^seed ' "$folder/out" | head -1 | cut -c1-110)"
    fi
done < <(mutants)
exit $bad
