# Writes the blocks of code of a page to files, for check-guides.sh.
#   usage: awk -v out=FOLDER -f scripts/guide-blocks.awk PAGE
# Results: FOLDER/NNN, the text of the block, and FOLDER/NNN.how: its kind (the word behind the
# fence), its line, and the mark above it, separated by tabs. A mark is a comment of HTML:
# <!-- MARK -->, which readers of the page do not see.
/^<!-- .* -->$/ && !inside {
    mark = substr($0, 6, length($0) - 9)
    next
}
/^```/ {
    if (inside) {
        close(file)
        inside = 0
    } else {
        inside = 1
        file = sprintf("%s/%03d", out, ++count)
        printf "%s\t%d\t%s\n", substr($0, 4), NR, mark >(file ".how")
        close(file ".how")
        printf "" >file
    }
    mark = ""
    next
}
inside {
    print >file
    next
}
# A mark belongs to the block that follows it at once.
{
    mark = ""
}
