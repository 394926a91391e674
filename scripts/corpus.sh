#!/usr/bin/env bash
# Prints the path of a folder with 4 MB of English: Jane Austen's six novels, a file for each chapter, from Debian's package
# r-cran-janeaustenr. When the package is not installed, it is downloaded and unpacked under build/text; nothing is installed.
set -eu
cd "$(dirname "$0")/.."
data=usr/lib/R/site-library/janeaustenr/data/Rdata.rdb
text=build/text/austen

# Each novel is a zlib stream behind its length: R's form of a list of lines, each with flags and a length.
chapters() { # RDB FOLDER
    perl -MCompress::Zlib -we '
        local $/;
        open my $file, "<:raw", $ARGV[0] or die "cannot open $ARGV[0]: $!\n";
        for (my $data = <$file>; length $data;) {
            my ($stream, $novel, $status) = (inflateInit(), "");
            ($novel, $status) = $stream->inflate($data = substr $data, 4);
            $status == Z_STREAM_END or die "$ARGV[0] is not as expected\n";
            my ($at, @lines) = index($novel, "\0\0\0\x10") + 8;
            for (1 .. unpack "N", substr $novel, $at - 4, 4) {
                my $size = unpack "N", substr $novel, $at + 4, 4;
                push @lines, substr $novel, $at + 8, $size;
                $at += 8 + $size;
            }
            my ($name, $number) = (lc $lines[0], 0);
            for my $chapter (split /^(?=CHAPTER |Chapter )/m, join "\n", @lines) {
                next unless $number++; # the title
                my @paragraphs = map s/\s+/ /gr, grep /\S/, split /\n\s*\n/, $chapter;
                open my $out, ">", sprintf "%s/%s-%02d.txt", $ARGV[1], $name =~ tr/ /-/r, $number - 1 or die "$!\n";
                print $out join("\n\n", @paragraphs), "\n";
            }
        }' "$@"
}

reads_rdb() { perl -MCompress::Zlib -e 1 2>/dev/null; }

if [ ! -d $text ]; then
    reads_rdb || [ "$(id -u)" != 0 ] || apt-get install -y -qq perl >/dev/null 2>&1 || true
    reads_rdb || {
        echo "missing: run 'sudo apt-get install perl', or pass your own text with TEXT=path" >&2
        exit 71
    }
    rdb=/$data
    mkdir -p build/text
    if [ ! -f $rdb ]; then
        echo "fetching 4 MB of English: Jane Austen's novels, Debian's package r-cran-janeaustenr" >&2
        (cd build/text && apt-get download -qq r-cran-janeaustenr >/dev/null 2>&1) || {
            echo "cannot fetch a text: run 'sudo apt-get install r-cran-janeaustenr', or pass your own text with TEXT=path" >&2
            exit 69
        }
        dpkg-deb -x build/text/r-cran-janeaustenr_*.deb build/text
        rdb=build/text/$data
    fi
    rm -rf $text.new
    mkdir $text.new
    chapters "$rdb" $text.new
    mv $text.new $text
fi
echo "$text"
