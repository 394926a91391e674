// The merge table as data inside the program.
    .section .rodata
    .global gpt2_merges_begin, gpt2_merges_end
    .balign 64
gpt2_merges_begin:
    .incbin "tokenizer/gpt2_merges.bpe"
gpt2_merges_end:
    .byte 0
    .section .note.GNU-stack,"",@progbits
