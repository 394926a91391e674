# Commands, options, keys and words of keys that went: successors.def.
load ../helpers

@test "each word that went answers with its successor, and the changelog has the table" {
    root=$BATS_TEST_DIRNAME/../../.. && cd "$BATS_TEST_TMPDIR"
    sed -nE 's/^SUCCESSOR\(([A-Z]+), "(.*)", "(.*)", "(.*)", "(.*)"\)$/\1:\2:\3:\4:\5/p' "$root/common/cli/successors.def" >rows
    [ "$(grep -c '^SUCCESSOR(' "$root/common/cli/successors.def")" = "$(wc -l <rows)" ]
    while IFS=: read -r kind program scope old new; do
        case $kind in
            COMMAND) run_match 2 "'$program $old' is now 'millrace $new'" "$BIN/$program" "$old" ;;
            OPTION) [ ${#old} = 1 ] && old=-$old || old=--$old
                for command in $scope; do run_match 2 "'$old' is now '$new'" "$BIN/$program" "$command" "$old"; done ;;
            KEY) run_match 2 "'$old' is now '$new'" "$BIN/$program" plan "--$old=1" ;;
            WORD) run_match 2 "'$scope=$old' is now '$new'" "$BIN/$program" plan "--$scope=$old" ;;
        esac
        case $kind in
            OPTION) old="$program $scope $old" ;;
            COMMAND) old="$program $old" new="millrace $new" ;;
            WORD) old="$scope=$old" ;;
        esac
        printf '| `%s` | `%s` |\n' "${old//  / }" "$new"
    done <rows >table
    diff table <(sed -n '/^| was | is |/,/^$/p' "$root/CHANGELOG.md" | tail -n +3 | grep .)
}
