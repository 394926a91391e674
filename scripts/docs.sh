#!/usr/bin/env bash
# docs.sh PYTHON BIN: the manual as a site with search, in build/site. A link to a page or a heading that does not exist is an error.
set -eu
cd "$(dirname "$0")/.."
pages=build/site-pages bin=$2
rm -rf $pages && mkdir -p $pages
cp docs/*.md docs/*.png scripts/iframe-worker.js scripts/site.css $pages/
sed 's|](docs/|](|g; s|](loader/python/README.md|](pytorch.md|' README.md >$pages/index.md
sed 's|](docs/|](|g' CONTRIBUTING.md >$pages/CONTRIBUTING.md
cp CHANGELOG.md $pages/
cp loader/python/README.md $pages/pytorch.md
sed -i 's|](../loader/python/README.md|](pytorch.md|' $pages/*.md

# The manual pages of a program's commands as one page.
manual() {
    local page
    echo "# $1: commands and options"
    for page in $("$bin/$1" --man | sed -nE 's/^\.BR millrace\\-([a-z-]+) \([15]\)$/\1/p'); do
        printf '\n## millrace %s\n\n' "$page"
        "$bin/$1" --man "$page" | sed '/^\.SH EXIT STATUS\|^\.SH SEE ALSO/,$d' | mandoc -T html -O fragment |
            sed -E '/<table class="head">/,/<\/table>/d; /<table class="foot">/,/<\/table>/d; s/ id="[^"]*"//g; s/<a [^>]*>|<\/a>//g; s/(<\/?)h1/\1h4/g'
    done
}
for program in shardtool loader trainer; do manual $program >$pages/man-$program.md; done

NO_MKDOCS_2_WARNING=1 "$1" -m mkdocs build --quiet --strict --config-file scripts/mkdocs.yml
# A page asks no other server for anything.
if grep -rE '<(script|link|img|iframe)[^>]*(src|href)="?(https?:)?//' build/site --include='*.html'; then exit 1; fi
echo "build/site/index.html"
