# released.tcl FILE: runs a test file whose tests look at database files themselves (their sizes, bytes, copies). Before they do,
# the database is asked to release its file, as a user would before a copy. Nothing else of the test is changed.
set holdfast_file [lindex $argv 0]
set argv [lrange $argv 1 end]
# The file takes its folder from it.
set argv0 $holdfast_file

# Those that bear the mark are asked, by a connection of their own.
proc holdfast_release {path} {
  if {![holdfast_file_command isfile $path] || [holdfast_file_command size $path] < 100} return
  set channel [holdfast_open_command $path rb]
  set head [read $channel 100]
  close $channel
  if {[string range $head 72 74] ne "HF3"} return
  # In use is no reason to fail: the test looks at what is there.
  if {[catch {sqlite3 holdfast_asks $path}]} return
  catch {holdfast_asks eval {PRAGMA holdfast_release}}
  catch {holdfast_asks close}
}

foreach command {file open glob hexio_read hexio_write md5file} {
  rename $command holdfast_${command}_command
}

proc file {what args} {
  if {$what in {size copy rename}} {
    foreach path $args {holdfast_release $path}
  }
  uplevel 1 [list holdfast_file_command $what {*}$args]
}

proc open {path args} {
  holdfast_release $path
  uplevel 1 [list holdfast_open_command $path {*}$args]
}

# What is beside a database in use is not there when it is copied.
proc glob {args} {
  foreach path [holdfast_glob_command -nocomplain {*}$args] {holdfast_release $path}
  uplevel 1 [list holdfast_glob_command {*}$args]
}

foreach command {hexio_read hexio_write md5file} {
  proc $command {path args} "
    holdfast_release \$path
    uplevel 1 \[list holdfast_${command}_command \$path {*}\$args\]
  "
}

source $holdfast_file
