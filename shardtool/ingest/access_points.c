// Keeps the last places at which decoding can begin.
#include "shardtool/ingest/access_points.h"

bool access_points_add(AccessPoints *points, uint64_t in, uint64_t out, const Codec *codec, void *state, bool ended) {
    AccessPoint *point = &points->last[points->added % ACCESS_POINTS];
    if (ended)
        point->state = (CodecState){0};
    else if (!codec->save || !codec->save(state, &point->state))
        return false;
    point->file = points->file, point->in = in, point->out = out;
    points->added++;
    return true;
}

const AccessPoint *access_points_find(const AccessPoints *points, uint64_t file, uint64_t out) {
    const AccessPoint *best = NULL;
    for (uint64_t i = 0; i < points->added && i < ACCESS_POINTS; i++) {
        const AccessPoint *point = &points->last[i];
        if (point->file == file && point->out <= out && (!best || point->out > best->out)) best = point;
    }
    return best;
}
