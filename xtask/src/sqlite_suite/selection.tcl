# selection.tcl FOLDER: says which files SQLite's permutation "atomic-batch-write" consists of: those of "veryquick" without
# the ones that look into a journal, which a file system with atomic writes does not have. Our VFS has none either.
set folder [lindex $argv 0]
set argv {}
# The file takes its folder from the name of the script that runs, and runs the tests if that is its own.
set argv0 $folder/selection
source $folder/permutations.test
foreach {key value} $::testspec(atomic-batch-write) {
  if {$key eq "-files"} {
    foreach file $value {
      puts "FILE [file normalize [file join $folder $file]]"
    }
  }
}
exit 0
